"""Values that a graph accepts, read from its nodes: probes and warm-up call a model with them that rejects others.

The SavedModel and the session call value_hints.py; the other files serve it.
"""
