"""Requests that arrive in one turn of the event loop: when they begin, and which of them one call of a model computes.

HTTP and gRPC import it.
"""
