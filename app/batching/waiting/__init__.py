"""What waits, part by part: lanes, their order, the seconds of their calls, and the room that all share.

Only app/batching imports it, mostly through queue.py.
"""
