"""Which request is answered how: at once, by the ASGI application, as a call of gRPC, or with a rejection."""

from __future__ import annotations

from typing import NamedTuple

from app.transports.http.connections.connection_limits import ConnectionLimits
from app.transports.http.direct.fast_path import FastPath
from app.transports.http2.hpack import HeaderList
from app.transports.http2.limits import Http2Limits
from app.transports.http2.protocol import Application, Http2Protocol
from app.transports.http2.stream import Stream
from app.transports.http2.times import Times
from app.transports.rest_http2.direct_request import DirectRequest
from app.transports.rest_http2.http2_asgi_request import Http2AsgiRequest
from app.transports.rest_http2.rejected_request import RejectedRequest
from app.transports.rest_http2.request import RestRequest
from app.transports.rest_http2.request_head import RestHead
from app.transports.rest_http2.rest_connection import RestConnection


class GrpcOnRestPort(NamedTuple):
    """The application of gRPC for calls that come by connections of REST, and its limits.

    times: of a connection from its first call on, also for its requests of REST.
    """

    application: Application
    limits: Http2Limits
    times: Times


class RestApplication:
    """Answers the requests of all connections of a server.

    Args:
        grpc: answers requests with a content type of gRPC; None if they are not told apart.

    """

    def __init__(self, fast_path: FastPath, limits: ConnectionLimits, grpc: GrpcOnRestPort | None = None) -> None:
        self._fast_path = fast_path
        self._limits = limits
        self._grpc = grpc

    # --- http2's Application ---

    def begin(self, connection: Http2Protocol, stream: Stream, headers: HeaderList, ended: bool) -> None:
        head = headers.meaning

        # 1. A call of gRPC.
        if type(head) is not RestHead:
            grpc = self._grpc
            if grpc is not None and _is_grpc(headers):
                if connection.times is not grpc.times:
                    connection.timer.change(connection, grpc.times)
                grpc.application.begin(connection, stream, headers, ended)
                return
            head = headers.meaning = RestHead(headers, self._limits, self._fast_path)
        assert isinstance(connection, RestConnection)  # noqa: S101 - all that have this application are

        # 2. A request that cannot be read.
        if head.fault is not None:
            rejected = stream.owner = RejectedRequest(connection, stream, head.fault)
            rejected.head_only = (b":method", b"HEAD") in headers.fields
            if ended:
                rejected.data(b"", True)

        # 3. A probe.
        elif head.probe and ended:
            self._answer_probe(connection, stream, head)

        # 4. A request on the fast path, and every other one.
        elif head.computes is not None:
            _begin(DirectRequest(connection, stream, head, *head.computes), ended=ended)
        else:
            _begin(Http2AsgiRequest(connection, stream, head), ended=ended)

    def _answer_probe(self, connection: RestConnection, stream: Stream, head: RestHead) -> None:
        probes = self._fast_path.probes
        assert probes is not None  # noqa: S101 - the head says that it is one
        reply = probes.answer(
            head.probe, client=connection.address, method=head.method, target=head.target, request_id=head.request_id
        )
        request = RestRequest(connection, stream)
        request.head_only = head.method == b"HEAD"
        request.send_reply(reply, request_id=head.request_id)


def _begin(request: DirectRequest | Http2AsgiRequest, *, ended: bool) -> None:
    request.stream.owner = request
    if request.hold_head():
        request.begin(ended)


def _is_grpc(headers: HeaderList) -> bool:
    if headers.meaning is not None:  # it is one that gRPC has read
        return True
    kind = next((value for name, value in headers.fields if name == b"content-type"), b"")
    return kind.startswith(b"application/grpc") and kind[16:17] in {b"", b"+", b";"}
