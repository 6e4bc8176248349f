"""Processes that read long bodies, so that no parser keeps the GIL of the server.

Imported by the protocols over HTTP and by the composition.
"""
