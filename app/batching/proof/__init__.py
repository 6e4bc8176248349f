"""What requests prove of a signature's rows: that they may share a call, and how many a call may have.

Only app/batching and app/placement.py import it.
"""
