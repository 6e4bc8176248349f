"""Handshakes of TLS at the ports of HTTP: each counts as a connection that waits, and gives way as one."""

from __future__ import annotations

import ssl

from app.transports.descriptors import beyond_http_connections
from app.transports.http.connections.connection_limits import Connections
from app.transports.tls.served_tls import ServedTls
from app.transports.tls.tls_connection import TlsConnection

#: RFC 9113, section 3.2; RFC 7301, section 6.
_BOTH, _HTTP1 = ("h2", "http/1.1"), ("http/1.1",)


class HttpHandshakes:
    """The handshakes of a port.

    Where all connections have a request, a few handshakes go on: so a probe gets its answer (http1/over_limit.py). They
    speak HTTP/1.1, in which the 503 is written; the oldest of them ends for a new one.

    Args:
        verify: clients need a certificate, where `tls` has an authority of theirs.

    Attributes:
        under_way: handshakes that have not ended.
    """

    def __init__(self, connections: Connections, tls: ServedTls, *, verify: bool = True) -> None:
        self.timeout_s = connections.limits.arrival_timeout_s
        self._connections = connections
        self._tls = tls
        self._verify = verify
        self.under_way: set[TlsConnection] = set()
        self._beyond: dict[TlsConnection, None] = {}  # the oldest first

    def context(self, connection: TlsConnection) -> ssl.SSLContext:
        """As tls_connection.Handshakes.context."""
        return self._tls.context(_HTTP1 if connection in self._beyond else _BOTH, verify=self._verify)

    def begin(self, connection: TlsConnection) -> bool:
        """As tls_connection.Handshakes.begin."""
        self.under_way.add(connection)
        if self._connections.admit(connection, tell=False):
            self._beyond[connection] = None
            if len(self._beyond) > beyond_http_connections():
                oldest = next(iter(self._beyond))
                del self._beyond[oldest]
                oldest.give_way()
        return True

    def end(self, connection: TlsConnection) -> None:
        """As tls_connection.Handshakes.end."""
        self.under_way.discard(connection)
        self._connections.remove(connection)
        self._beyond.pop(connection, None)

    def failed(self, connection: TlsConnection, why: str) -> None:
        self._tls.handshake_failed(connection.address, why)
