"""StableHLO modules in a graph, which JAX exports as XlaCallModule, and the arguments that they return unchanged.

The folder `execution` imports it.
"""
