"""TLS: what new handshakes use, read from files that may change, and the handshakes themselves.

HTTP, gRPC and who puts them together use it; it knows neither.
"""
