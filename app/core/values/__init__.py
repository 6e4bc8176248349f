"""Values that inputs may have: kinds that computations answer differently, samples, and what a graph tells of them.

Runtimes, loading and placement import it.
"""
