"""What waits, part by part: lanes, their order, callers, the seconds of calls, and the room that all share.

Only app/batching imports it, mostly through queue.py.
"""
