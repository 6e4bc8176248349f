"""Which requests share calls of a signature: what is proven of its rows, by which calls, and what is kept of it.

The loader and the background work import it.
"""
