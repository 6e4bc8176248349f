"""Bytes on sockets: HTTP/1.1, what all of HTTP shares, and gRPC. For protocols, server, frontends, model_server."""
