"""Values with which models are called before requests: rows that a model accepts, and how far rounding moves answers.

Used by app/loading.
"""
