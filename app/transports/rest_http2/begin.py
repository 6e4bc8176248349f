"""How a connection becomes one of HTTP/2: by TLS, or by its first bytes (RFC 9113, section 3).

`Upgrade: h2c` is ignored, and its request answered over HTTP/1.1 (RFC 9110, section 7.8). A proxy that forwards it
takes what follows a 101 for a tunnel, in which its client sends requests that the proxy neither sees nor checks
(request smuggling). RFC 9113 (section 3.1) took it out.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import inf
from sys import maxsize

from app.transports.http.connections.accepting_server import AcceptingServer
from app.transports.http.connections.connection_limits import ConnectionLimits, Waiting
from app.transports.http.connections.server_fields import ServerFields
from app.transports.http.direct.fast_path import FastPath
from app.transports.http2.limits import Http2Limits
from app.transports.http2.protocol import Http2Connections
from app.transports.http2.times import Times
from app.transports.rest_http2 import responses
from app.transports.rest_http2.application import GrpcOnRestPort, RestApplication
from app.transports.rest_http2.rest_connection import RestConnection, SharedByRequests

#: Requests of a connection at the same time. Chosen: a mesh sends all of a node's over one.
_MOST_STREAMS = 1000


class RestHttp2:
    """Serves connections of HTTP/2 (http/connections/accepting_server.py: `Http2`).

    Args:
        fast_path: the fast path, shared with connections of HTTP/1.1.
        grpc: answers gRPC calls on the same connections, which then have the wider limits; None: no calls are answered.
    """

    def __init__(self, fast_path: FastPath, limits: ConnectionLimits, grpc: GrpcOnRestPort | None = None) -> None:
        direct_fields = ServerFields(responses.fields, fast_path.headers)
        self._parts = SharedByRequests(fast_path.coalescer, direct_fields, ServerFields(responses.fields))
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
        made = RestConnection(self._connections, server, self._parts)
        server.replaced(connection, made)
        transport.set_protocol(made)
        made.connection_made(transport)
        if received:
            made.data_received(received)
