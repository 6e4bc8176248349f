"""Pipelines: what is counted of their steps, shown, and advised."""
