"""Which request is answered how: at once, by the ASGI application, as a call of gRPC, or with a rejection."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from app.transports.http.asgi import Header
from app.transports.http.connections.connection_limits import ConnectionLimits
from app.transports.http.direct.fast_path import FastPath
from app.transports.http.exchange import HttpApi
from app.transports.http.head import RequestHead
from app.transports.http2.hpack import HeaderList, literal
from app.transports.http2.limits import Http2Limits
from app.transports.http2.protocol import Application, Http2Protocol
from app.transports.http2.stream import Stream
from app.transports.http2.times import Times
from app.transports.request_id import REQUEST_ID
from app.transports.rest_http2 import responses
from app.transports.rest_http2.direct_request import DirectRequest
from app.transports.rest_http2.http2_asgi_request import Http2AsgiRequest
from app.transports.rest_http2.rejected_request import RejectedRequest
from app.transports.rest_http2.request import RestRequest
from app.transports.rest_http2.request_head import RestHead
from app.transports.rest_http2.rest_connection import RestConnection


class GrpcOnRestPort(NamedTuple):
    """What answers calls of gRPC that come by connections of REST, within which limits.

    times: of a connection from its first call on, also for its requests of REST.
    """

    application: Application
    limits: Http2Limits
    times: Times


class RestApplication:
    """Answers the requests of all connections of a server.

    Args:
        grpc: answers requests with a content type of gRPC; None if they are not told apart.

    Attributes:
        fast_path: what it shares with connections of HTTP/1.1.
    """

    def __init__(self, fast_path: FastPath, limits: ConnectionLimits, grpc: GrpcOnRestPort | None = None) -> None:
        self.fast_path = fast_path
        self.limits = limits
        self._grpc = grpc
        self._answered: set[Http2Protocol] = set()

        # The fields of every response, as made from `_server_headers`: of the fast path, and of the application.
        self._server_headers: Sequence[Header] = ()
        self._direct = self._plain = b""

    # --- http2's Application ---

    def begin(self, connection: Http2Protocol, stream: Stream, headers: HeaderList, ended: bool) -> None:
        head = headers.meaning

        # 1. A call of gRPC.
        if type(head) is not RestHead:
            grpc = self._grpc
            if grpc is not None and _is_grpc(headers):
                if connection.times is not grpc.times:
                    connection.change_times(grpc.times)
                grpc.application.begin(connection, stream, headers, ended)
                return
            head = headers.meaning = RestHead(headers, self.limits, self.fast_path)
        assert isinstance(connection, RestConnection)  # noqa: S101 - all that have this application are

        # 2. What cannot be read.
        if head.fault is not None:
            rejected = stream.owner = RejectedRequest(self, connection, stream, head.fault)
            rejected.head_only = (b":method", b"HEAD") in headers.fields
            if ended:
                rejected.data(b"", True)

        # 3. Who asks how the server is.
        elif head.probe and ended:
            self._answer_probe(connection, stream, head)

        # 4. What is answered here, and everything else.
        elif head.computes is not None:
            self._begin_direct(connection, stream, head, head.computes, ended=ended)
        else:
            asgi = stream.owner = Http2AsgiRequest(self, connection, stream, head)
            if asgi.hold_head():
                asgi.begin(ended)

    def _begin_direct(
        self,
        connection: RestConnection,
        stream: Stream,
        head: RestHead,
        computes: tuple[HttpApi, RequestHead],
        *,
        ended: bool,
    ) -> None:
        tracing = computes[0].tracing
        trace = None if tracing is None else tracing.begin(head.parent)
        direct = stream.owner = DirectRequest(
            self,
            connection,
            stream,
            *computes,
            head_bytes=head.long_bytes,
            request_id=head.request_id,
            trace=trace,
        )
        if direct.hold_head():
            direct.begin(head.length, ended)

    def _answer_probe(self, connection: RestConnection, stream: Stream, head: RestHead) -> None:
        probes = self.fast_path.probes
        assert probes is not None  # noqa: S101 - the head says that it is one
        reply = probes.reply(head.probe)
        block = responses.head(reply.status, self.common_fields(connection, direct=True), reply.head())
        if head.request_id:
            block += literal(REQUEST_ID, head.request_id)
        RestRequest(self, connection, stream).respond(block, () if head.method == b"HEAD" else reply.pieces)
        client = connection.address
        probes.note(reply, client=client, method=head.method, target=head.path, request_id=head.request_id)

    # --- requests call these ---

    def common_fields(self, connection: RestConnection, *, direct: bool) -> bytes:
        """The encoded fields of every response now; `direct`: of one that no application made."""
        server_headers = connection.server.headers
        if server_headers is not self._server_headers:
            self._server_headers = server_headers
            self._plain = responses.fields(server_headers)
            self._direct = responses.fields(self.fast_path.headers) + self._plain
        return self._direct if direct else self._plain

    def flush_soon(self, connection: Http2Protocol) -> None:
        """What was answered in this turn of the event loop is sent together."""
        if not self._answered:
            asyncio.get_running_loop().call_soon(self._flush)
        self._answered.add(connection)

    def _flush(self) -> None:
        answered, self._answered = self._answered, set()
        for each in answered:
            each.flush()


def _is_grpc(headers: HeaderList) -> bool:
    if headers.meaning is not None:  # it is one that gRPC has read
        return True
    kind = next((value for name, value in headers.fields if name == b"content-type"), b"")
    return kind.startswith(b"application/grpc") and kind[16:17] in {b"", b"+", b";"}
