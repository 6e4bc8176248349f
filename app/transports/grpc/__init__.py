"""The gRPC server, and what its protocols share: handlers, deadlines, status codes, health.

Protocols and server import it; frontends and model_server import its options.
"""
