"""The search for the fastest variants of a signature, by measuring them (docs/execution-variants.md).

For saved_model; its cache's folder is also a default of the server's settings.
"""
