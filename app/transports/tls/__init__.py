"""TLS: what new handshakes use, read from files that may change, and the handshakes themselves.

HTTP, gRPC and the composition root use it; it imports neither.
"""
