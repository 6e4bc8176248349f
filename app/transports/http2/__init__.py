"""HTTP/2: header compression, frames, the state of a connection as bytes in and events out, and connections on sockets.

It knows no gRPC. Transports import it, which bring what answers requests (`app.transports.grpc` and
`app.transports.rest_http2`).
"""
