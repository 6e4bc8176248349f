"""The gRPC server, and what its protocols share: handlers, deadlines, status codes, health.

Protocols and `app.server` import from here.
"""
