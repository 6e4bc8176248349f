"""The gRPC server, on HTTP/2 of our own, and what its protocols share: services, calls, status codes, health.

Protocols and server import it; frontends and model_server import its options.
"""
