"""The batching core: requests wait in lanes, share batches, and get their own rows back.

It imports core, the standard library and numpy only. `model.py`, `placement.py`, loading and server import it;
pipelines use `Batcher.steps`; config, instrumentation, `protocols/operations` and `protocols/streams` import its
options and priorities only.
"""
