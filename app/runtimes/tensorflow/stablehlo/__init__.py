"""What the StableHLO modules in a graph say, which JAX exports as XlaCallModule: what they return unchanged, and which
axis of their results are the rows. The folder `execution`, and the proof of rows by graph, may import it.
"""
