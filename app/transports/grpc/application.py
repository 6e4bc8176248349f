"""The gRPC application: begins a unary call or a stream for each request of a connection, or rejects the request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from app.core.burst import Burst
from app.core.errors import ServingError
from app.transports.grpc.codes import StatusCode
from app.transports.grpc.incoming import replies
from app.transports.grpc.incoming.call_coalescer import CallCoalescer
from app.transports.grpc.incoming.incoming_call import IncomingCall
from app.transports.grpc.incoming.no_call import NoCall
from app.transports.grpc.incoming.stream_call import StreamCall
from app.transports.grpc.incoming.unary_call import UnaryCall
from app.transports.grpc.request_head import GrpcHead, read_head
from app.transports.grpc.services import Service
from app.transports.http2.hpack import HeaderList
from app.transports.http2.protocol import Http2Protocol
from app.transports.http2.stream import Stream

#: The error of too much metadata, in the words of gRPC's own servers.
_TOO_LONG = "received metadata size exceeds hard limit ({} vs. {})"

#: The most open calls of a connection whose replies are a stream. Chosen: several times what an honest client has; the
#: tasks of 500 take 2 MB, and end in 15 ms.
MOST_LASTING = 500

#: A limit of bytes that no message reaches: gRPC's lengths have 32 bits.
NO_LIMIT = 2**32

_TOO_MANY = f"{MOST_LASTING} streaming calls are open on this connection, and no more may be; open another connection"


class GrpcApplication:
    """Answers the requests of all connections of a server.

    Args:
        max_message_bytes: the most bytes of a message of a request; max_reply_bytes: of a message of a reply.
        max_metadata_bytes: told to a client whose metadata is longer, as the HTTP/2 connection finds.
        burst: is told of calls that are left for the next turns of the event loop.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        services: Sequence[Service],
        max_message_bytes: int,
        max_metadata_bytes: int,
        burst: Burst,
        clock: Callable[[], float] = time.monotonic,
        *,
        max_reply_bytes: int = NO_LIMIT,
    ) -> None:
        self.max_message_bytes = max_message_bytes
        self.max_reply_bytes = max_reply_bytes
        self.clock = clock
        self.tasks: set[asyncio.Task[None]] = set()
        self.coalescer = CallCoalescer(burst, self.flush, clock)
        self._max_metadata_bytes = max_metadata_bytes
        self._methods = {path: method for service in services for path, method in service.methods.items()}
        self._answered: set[Http2Protocol] = set()

    # --- http2's Application ---

    def begin(self, connection: Http2Protocol, stream: Stream, headers: HeaderList, ended: bool) -> None:
        head = read_head(headers)

        # 1. Reject what is no gRPC call, and a head that is too long or has a wrong field.
        if head.status:
            no_call = stream.owner = NoCall(connection, stream, head.status)
            no_call.data(b"", ended)
            return
        if headers.too_long or head.fault:
            self._reject(connection, stream, headers, head)
            return

        # 2. Reject an unknown method, and a call with streamed replies if the connection has MOST_LASTING open.
        method = self._methods.get(head.path)
        if method is None:
            _end(connection, stream, StatusCode.UNIMPLEMENTED, "Method not found!")
            return
        if method.lasting and connection.lasting >= MOST_LASTING:
            _end(connection, stream, StatusCode.RESOURCE_EXHAUSTED, _TOO_MANY)
            return

        # 3. Begin the call, if there is memory for it and its credential allows it.
        kind = StreamCall if method.lasting else UnaryCall
        call: IncomingCall = kind(self, connection, stream, head, method)
        stream.owner = call
        calls = method.calls
        if calls.allowed is not None or calls.memory.full:  # else there is nothing to check
            try:
                call.permit = method.admit(head)
            except ServingError as error:
                call.reject(error)
                return

        # 4. Count a long head as held memory, then start the call; a request without content has ended already.
        if head.long_bytes and not call.hold_head():
            return
        call.start()
        if ended:
            call.data(b"", True)

    def _reject(self, connection: Http2Protocol, stream: Stream, headers: HeaderList, head: GrpcHead) -> None:
        if headers.too_long:
            text = _TOO_LONG.format(headers.size, self._max_metadata_bytes)
            _end(connection, stream, StatusCode.RESOURCE_EXHAUSTED, text)
        else:
            _end(connection, stream, StatusCode.INVALID_ARGUMENT, head.fault)

    # --- calls ---

    def flush_soon(self, connection: Http2Protocol) -> None:
        """Sends the connection's answers at the end of this turn of the event loop."""
        if not self._answered:
            asyncio.get_running_loop().call_soon(self.flush)
        self._answered.add(connection)

    def flush(self) -> None:
        answered, self._answered = self._answered, set()
        for each in answered:
            each.flush()


def _end(connection: Http2Protocol, stream: Stream, code: StatusCode, text: str) -> None:
    connection.connection.send_headers(stream, replies.only_trailers(code, text), end=True)
