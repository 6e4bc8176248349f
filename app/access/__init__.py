"""Who a caller is, by an API key or a token, what it may do, and how much: one answer for every transport and protocol.

It knows no HTTP and no gRPC. Transports, protocols and the server import it; it imports `app.core` alone.
"""
