"""The batching core: a request waits in a queue of lanes, is put into a batch with others, and gets its own rows back.

It imports core, the standard library and numpy only. `model.py`, `placement.py`, loading and server import it;
pipelines use `Batcher.steps`; config, instrumentation, `protocols/operations` and `protocols/streams` import its
options and priorities only.
"""
