"""Handshakes of TLS at the ports of gRPC: each counts as a connection that has had no request, and gives way as one."""

from __future__ import annotations

import ssl

from app.transports.http2.protocol import Http2Connections
from app.transports.tls.served_tls import ServedTls
from app.transports.tls.tls_connection import TlsConnection

#: RFC 9113, section 3.2.
_HTTP2 = ("h2",)


class GrpcHandshakes:
    """The handshakes of the gRPC port (`Handshakes` of tls_connection.py)."""

    def __init__(self, connections: Http2Connections, tls: ServedTls, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._connections = connections
        self._tls = tls

    def context(self, connection: TlsConnection) -> ssl.SSLContext:  # noqa: ARG002 - all use the same
        return self._tls.context(_HTTP2)

    def begin(self, connection: TlsConnection) -> bool:
        if not self._connections.make_room():
            return False
        self._connections.arriving.add(connection)
        self._connections.unused[connection] = None
        return True

    def end(self, connection: TlsConnection) -> None:
        self._connections.arriving.discard(connection)
        self._connections.unused.pop(connection, None)

    def failed(self, connection: TlsConnection, why: str) -> None:
        self._tls.handshake_failed(connection.address, why)
