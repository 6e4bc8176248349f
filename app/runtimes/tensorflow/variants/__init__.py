"""Measures the variants of a signature and chooses the fastest (docs/execution-variants.md).

For saved_model; its cache's folder is also a default of the server's settings.
"""
