"""Batches of requests with different inner shapes: buckets, padding, rules of sizes, ragged rows.

`batching/` and what prepares models for it (`loading/`, `placement.py`) may import it; it performs no I/O.
"""
