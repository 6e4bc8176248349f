"""How a connection becomes one of HTTP/2: by TLS, its first bytes, or a request that asks for it (RFC 9113, 3).

The last of these is off by default. A proxy that forwards `Upgrade: h2c` takes what follows a 101 for a tunnel, in
which its client sends requests that the proxy neither sees nor checks (request smuggling); and RFC 9113 (section 3.1)
took the mechanism out. A client that asks is answered over HTTP/1.1, as RFC 9110 (section 7.8) lets a server do.
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import urlsafe_b64decode
from dataclasses import replace
from math import inf
from sys import maxsize

from app.transports.http.asgi import Header
from app.transports.http1.accepting_server import AcceptingServer
from app.transports.http1.direct.fast_path import FastPath
from app.transports.http1.head_parser import HeadParser
from app.transports.http1.limits import ConnectionLimits, Waiting
from app.transports.http2.hpack import HeaderList
from app.transports.http2.limits import Http2Limits
from app.transports.http2.protocol import Http2Connections
from app.transports.http2.times import Times
from app.transports.rest_http2.application import GrpcOnRestPort, RestApplication
from app.transports.rest_http2.connection import RestConnection

#: Requests of a connection at the same time. Chosen: a mesh sends all of a node's over one.
_MOST_STREAMS = 1000

_SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: h2c\r\n\r\n"

_SETTINGS = b"http2-settings"

#: Fields of a request that asks for HTTP/2 that do not go on with it.
_OF_THE_CONNECTION = frozenset({b"connection", b"host", b"keep-alive", b"proxy-connection", b"te", _SETTINGS})


class RestHttp2:
    """Serves connections of HTTP/2 (http1/accepting_server.py: `Http2`).

    Args:
        fast_path: what they share with those of HTTP/1.1.
        grpc: answers calls of gRPC on the same connections, whose limits are the wider ones then; None: nothing does.
        upgrades: requests that ask for it turn their connection into HTTP/2 (RFC 7540, section 3.2).
    """

    def __init__(
        self,
        fast_path: FastPath,
        limits: ConnectionLimits,
        grpc: GrpcOnRestPort | None = None,
        *,
        upgrades: bool = False,
    ) -> None:
        self._upgrades = upgrades
        http2_limits = Http2Limits(max_streams=_MOST_STREAMS, max_list_bytes=limits.max_head_bytes)
        if grpc is not None:
            most = max(http2_limits.max_streams, grpc.limits.max_streams)
            longest = max(http2_limits.max_list_bytes, grpc.limits.max_list_bytes)
            http2_limits = replace(grpc.limits, max_streams=most, max_list_bytes=longest)
        times = Times(
            handshake_s=limits.arrival_timeout_s,
            idle_s=limits.keep_alive_s,
            age_s=limits.max_connection_age_s or inf,
            age_awaits_requests=True,
            slow_s=limits.arrival_timeout_s,
            min_bytes_per_s=limits.min_body_bytes_per_s,
        )
        self._connections = Http2Connections(
            RestApplication(fast_path, limits, grpc),
            limits=http2_limits,
            times=times,
            memory=fast_path.memory,
            most=maxsize,  # the server counts its connections
            clock=fast_path.clock,
        )

    def begin(
        self, connection: Waiting, transport: asyncio.Transport, server: AcceptingServer, received: bytes
    ) -> None:
        """Takes over a connection whose client has sent these bytes, the beginning of HTTP/2's preface."""
        made = self._take_over(connection, transport, server)
        if received:
            made.data_received(received)

    def upgrade(
        self, connection: Waiting, transport: asyncio.Transport, server: AcceptingServer, head: HeadParser
    ) -> bool:
        """Takes over a connection whose request, without a body, asks for HTTP/2; False if it may not, or not so."""
        if not self._upgrades:
            return False
        settings, headers = _settings_of(head), _headers_of(head)
        if settings is None or headers is None or transport.get_extra_info("ssl_object") is not None:
            return False
        transport.write(_SWITCHING)
        self._take_over(connection, transport, server).upgraded(settings, headers)
        return True

    def _take_over(self, connection: Waiting, transport: asyncio.Transport, server: AcceptingServer) -> RestConnection:
        made = RestConnection(self._connections, server)
        server.replaced(connection, made)
        transport.set_protocol(made)
        made.connection_made(transport)
        return made


def _settings_of(head: HeadParser) -> bytes | None:
    """The payload of a frame SETTINGS; None if the request has not exactly one, or does not name it."""
    named = b",".join([value for name, value in head.headers if name == b"connection"]).lower().split(b",")
    given = [value for name, value in head.headers if name == _SETTINGS]
    if head.version != "1.1" or not {b"upgrade", _SETTINGS} <= {each.strip() for each in named} or len(given) != 1:
        return None
    try:
        payload = urlsafe_b64decode(given[0].rstrip(b"=") + b"=" * (-len(given[0].rstrip(b"=")) % 4))
    except binascii.Error:
        return None
    return payload if len(payload) % 6 == 0 else None


def _headers_of(head: HeadParser) -> HeaderList | None:
    """The same request in HTTP/2; None if its target is not a path."""
    if not head.url.startswith(b"/"):
        return None
    host = next((value for name, value in head.headers if name == b"host"), b"")
    pseudo: list[Header] = [(b":method", head.method), (b":scheme", b"http"), (b":path", head.url)]
    if host:
        pseudo.append((b":authority", host))
    fields = [(name, value.strip(b" \t")) for name, value in head.headers if name not in _OF_THE_CONNECTION]
    return HeaderList((*pseudo, *fields), len(head.raw))
