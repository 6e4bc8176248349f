"""Bytes on sockets: HTTP/1.1, what all of HTTP shares, and gRPC. Protocols and `app.server` import from here."""
