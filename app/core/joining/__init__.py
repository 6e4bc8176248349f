"""Several requests as one call of a model: which requests may share it, and the answers of each.

Transports, frontends and pipelines import it.
"""
