"""Bytes on sockets: HTTP/1.1, HTTP/2, what all of HTTP shares, gRPC. For protocols, server, frontends, model_server."""

#: After the drain only replies that are being written are left; HTTP and gRPC give them this many seconds. Chosen.
CLOSE_TIMEOUT_S = 5
