"""Access of callers: identity by an API key or a token, permissions and rates, for all transports and protocols.

It knows no HTTP and no gRPC. Transports, protocols and the server import it; it imports `app.core` alone.
"""
