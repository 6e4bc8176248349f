"""What requests prove of a signature's rows before any answer comes from a shared call: what is kept, what is found.

Only app/batching and app/placement.py import it.
"""
