"""Values that a graph accepts, read from its nodes, for probes and the warm-up of models that reject other values.

The SavedModel and the session call graph_hints.py; the other files serve it.
"""
