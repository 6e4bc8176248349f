"""The proof of a signature's rows by requests: whether they may share a call, and how many a call may have.

Only app/batching and app/placement.py import it.
"""
