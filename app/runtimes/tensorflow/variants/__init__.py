"""The forms in which a signature can be executed, and the search for the fastest (docs/execution-variants.md).

For saved_model; its cache's folder is also a default of the server's settings.
"""
