"""Load from this side: requests sent by the clock, and the highest rate that a server answers in time.

Standard library and the client's codecs alone; it measures any HTTP server, Ferry or not.
"""
