"""Values of inputs: kinds that computations answer differently, samples, hints of a graph, rounding.

Runtimes, loading and placement import it.
"""
