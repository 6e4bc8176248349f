"""Rows that a model accepts, for calls before the first request.

Used by app/loading.
"""
