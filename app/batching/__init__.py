"""The batching core: a request waits in a queue of lanes, is put into a batch with others, and gets its own rows back.

`model.py`, `loading/` and the composition may import it; it imports `core/`, the standard library and numpy only.
"""
