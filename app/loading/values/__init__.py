"""Values with which models are called before requests: rows that a model accepts.

Used by app/loading.
"""
