"""Proofs of rows, which decide which requests share calls of a signature: by graph, by calls, and kept ones.

The loader and the background work import it.
"""
