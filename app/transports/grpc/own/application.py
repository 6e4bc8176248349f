"""Which call is answered how: at once, by a handler in a task, or not at all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import grpc
from grpc import StatusCode

from app.core.burst import Burst
from app.core.errors import ServingError
from app.transports.grpc.calls import Service
from app.transports.grpc.own import replies
from app.transports.grpc.own.at_once_call import AtOnceCall, AtOnceMethod
from app.transports.grpc.own.coalescing import CallCoalescer
from app.transports.grpc.own.handler_call import HandlerCall, lasts
from app.transports.grpc.own.incoming_call import IncomingCall
from app.transports.grpc.own.messages import Message, Rejected
from app.transports.grpc.own.no_call import NoCall
from app.transports.grpc.own.request_head import GrpcHead, Metadata, read_head
from app.transports.http2.hpack import HeaderList
from app.transports.http2.protocol import Http2Protocol
from app.transports.http2.stream import Stream

#: Of metadata, as gRPC's own servers say where there is more.
_TOO_LONG = "received metadata size exceeds hard limit ({} vs. {})"


#: Calls of streaming methods that a connection may have open. Chosen: several times what an honest client has; their
#: tasks take 2 MB, and end in 15 ms.
MOST_LASTING = 500

_TOO_MANY = f"{MOST_LASTING} streaming calls are open on this connection, and no more may be; open another connection"


class _HandlerDetails(NamedTuple):
    """As grpc.HandlerCallDetails."""

    method: str
    invocation_metadata: Metadata


class GrpcApplication:
    """Answers the requests of all connections of a server.

    Args:
        services: their handlers, and what they answer at once.
        max_message_bytes: a larger request is rejected.
        burst: see CallCoalescer.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        services: Sequence[grpc.GenericRpcHandler],
        max_message_bytes: int,
        max_metadata_bytes: int,
        burst: Burst,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_message_bytes = max_message_bytes
        self.clock = clock
        self.tasks: set[asyncio.Task[None]] = set()
        self.coalescer = CallCoalescer(burst, self.flush, clock)
        self._max_metadata_bytes = max_metadata_bytes
        self._services = services
        self._ours = [each for each in services if isinstance(each, Service)]
        self._at_once = {
            path: AtOnceMethod(path, at_once, service)
            for service in self._ours
            for path, at_once in service.at_once.items()
        }
        self._answered: set[Http2Protocol] = set()

    # --- http2's Application ---

    def begin(self, connection: Http2Protocol, stream: Stream, headers: HeaderList, ended: bool) -> None:
        head = read_head(headers)
        method = self._at_once.get(head.path)

        # 1. What is no call of gRPC, or has too much or a wrong field in its head.
        if head.status:
            no_call = stream.owner = NoCall(connection, stream, head.status)
            no_call.data(b"", ended)
            return
        if headers.too_long or head.fault:
            self._reject(connection, stream, headers, head)
            return

        # 2. A call that is answered at once, while there is memory for it, if its credential lets it be made.
        call: IncomingCall
        if method is not None and not method.calls.held.full and method.permits(head):
            call = stream.owner = AtOnceCall(self, connection, stream, head, method)
            if head.long_bytes and not call.hold_head():
                return

        # 3. Any other one, by its handler.
        else:
            handler = self._handler(head)
            if handler is None:
                _end(connection, stream, StatusCode.UNIMPLEMENTED, "Method not found!")
                return
            if connection.lasting >= MOST_LASTING and lasts(handler):
                _end(connection, stream, StatusCode.RESOURCE_EXHAUSTED, _TOO_MANY)
                return
            call = stream.owner = HandlerCall(self, connection, stream, head, handler)
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

    def _handler(self, head: GrpcHead) -> grpc.RpcMethodHandler | None:
        details = _HandlerDetails(head.path, head.metadata)
        return next((found for each in self._services if (found := each.service(details)) is not None), None)

    # --- calls ---

    def answer_in_task(self, call: AtOnceCall, message: Message) -> None:
        """A call that cannot be answered at once is answered by its handler."""
        handler = self._handler(call.head)
        assert handler is not None  # noqa: S101 - it has a method
        again = HandlerCall(self, call.connection, call.stream, call.head, handler)
        again.began_s = call.began_s
        again.counted = call.counted
        call.stream.owner = again
        again.start()
        try:
            again.messages([message], True)
        except (Rejected, ServingError) as error:  # it is this call's, not the caller's, which is over
            again.fail(error)

    def flush_soon(self, connection: Http2Protocol) -> None:
        """What was answered is sent at the end of this turn of the event loop."""
        if not self._answered:
            asyncio.get_running_loop().call_soon(self.flush)
        self._answered.add(connection)

    def flush(self) -> None:
        answered, self._answered = self._answered, set()
        for each in answered:
            each.flush()


def _end(connection: Http2Protocol, stream: Stream, code: StatusCode, text: str) -> None:
    connection.connection.send_headers(stream, replies.only_trailers(code.value[0], text), end=True)
