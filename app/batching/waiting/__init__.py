"""The parts of the queue: lanes, their order, callers, the seconds of waiting calls, and the room that all share.

Only app/batching imports it, mostly through queue.py.
"""
