"""A call from its first frame to its end: the base of unary calls and of streams."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from app.core.errors import ServingError
from app.transports.grpc.calls import GrpcCall
from app.transports.grpc.codes import StatusCode
from app.transports.grpc.incoming import replies
from app.transports.grpc.incoming.messages import PREFIX, Message, MessageReader, Rejected, inflate
from app.transports.grpc.request_head import GrpcHead
from app.transports.grpc.services import Method
from app.transports.http2.protocol import Http2Protocol
from app.transports.http2.stream import OWNER_SLOTS, Stream, StreamOwner
from app.transports.memory.body_room import BINARY, SHORT_BYTES
from app.transports.request_id import REQUEST_ID
from app.transports.request_priority import read_priority

#: A reply from this size on is counted at once. Chosen: HTTP's bodies, too, are seldom read at once from here on.
LONG_BYTES = 64 * 1024

#: Compressed messages of more bytes are inflated in a thread. Chosen: 4 KiB may become 4 MB, in 5 ms.
_INFLATED_HERE_BYTES = 4096

#: Bytes of a task with its method's frames. Measured by tests/transports/grpc/incoming/test_memory.py: 3,500 to 4,100.
TASK_BYTES = 4608


class SharedByCalls(Protocol):
    """The GrpcApplication of a server, as its calls use it."""

    max_message_bytes: int
    max_reply_bytes: int
    tasks: set[asyncio.Task[None]]
    #: Begins calls that need no task: CallCoalescer.
    coalescer: Any

    @property
    def clock(self) -> Callable[[], float]:
        """The clock, in monotonic seconds."""

    def flush_soon(self, connection: Http2Protocol) -> None:
        """Sends the connection's answers at the end of this turn of the event loop."""


class IncomingCall(GrpcCall, StreamOwner):
    """The owner of a stream: cuts its content into messages, and ends it.

    Attributes:
        streaming: its request may have any number of messages, at any time.
        began: the head of its answer was sent.
        reserved: bytes of `memory`, for what its longest message and its reply may become.
    """

    __slots__ = (*OWNER_SLOTS, "_arriving", "_reader", "_task", "_timer", "application", "head", "method")

    connection: Http2Protocol
    streaming = began = False

    def __init__(
        self, application: SharedByCalls, connection: Http2Protocol, stream: Stream, head: GrpcHead, method: Method
    ) -> None:
        calls, timeout_s, started_s = method.calls, head.timeout_s, application.clock()
        if timeout_s is None or timeout_s > calls.timeout_s:
            timeout_s = calls.timeout_s
        trace = None if calls.tracing is None else calls.tracing.begin(head.parent)
        GrpcCall.__init__(self, started_s, started_s + timeout_s, head.path, head.request_id, trace)
        StreamOwner.__init__(self, connection, stream, head.long_bytes)
        self.client = connection.peer
        self.application = application
        self.head = head
        self.method = method
        self._task: asyncio.Task[None] | None = None
        self._reader: MessageReader | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._arriving: asyncio.TimerHandle | None = None  # while a message arrives

    # --- each kind of call defines these ---

    def start(self) -> None:
        """Begins the call: its head came, and the caller may make it."""
        raise NotImplementedError

    def messages(self, messages: list[Message], ended: bool) -> None:
        """Whole messages came; `ended`: no more will. Raises Rejected, ServingError."""
        raise NotImplementedError

    # --- its caller ---

    def identify(self) -> None:
        """Notes the caller and the priority. Raises InvalidRequest: its priority is none."""
        rule = self.method.calls.callers
        if rule is not None:
            if self.permit is not None:
                self.caller = self.permit.principal.name
            else:
                self.caller = rule.caller(self.head.header, self.peer.rpartition(":")[0])
        if self.head.priority is not None:
            self.priority = read_priority(self.head.priority)

    # --- its task, if it has one ---

    def run(self, work: Callable[..., Awaitable[None]], *arguments: bytes) -> None:
        """Works in a task, when it is its connection's turn. An error ends the call."""
        self._task = asyncio.get_running_loop().create_task(self._work(work, arguments), name=self.path)
        self.application.tasks.add(self._task)
        self._task.add_done_callback(self.application.tasks.discard)

    async def _work(self, work: Callable[..., Awaitable[None]], arguments: tuple[bytes, ...]) -> None:
        try:
            await self._its_turn()
            await work(*arguments)
        except asyncio.CancelledError:
            self.end_with(StatusCode.CANCELLED, "")
        except Exception as error:
            self.fail(error)

    async def _its_turn(self) -> None:
        """Waits for the connection's turn: before a call, and before each message of a stream, as many may come."""
        await self.connection.turns.may_step(self.connection.share)

    async def _inflated(self, content: bytes) -> bytes:
        """The message that is compressed in `content`. Raises Rejected."""
        arguments = content, self.head.encoding, self.application.max_message_bytes
        if len(content) <= _INFLATED_HERE_BYTES:
            return inflate(*arguments)
        return await asyncio.to_thread(inflate, *arguments)

    # --- what comes ---

    def data(self, content: bytes, ended: bool) -> None:
        if self.answered:
            return
        reader = self._reader
        if reader is None:
            reader = self._reader = MessageReader(self.application.max_message_bytes)
        try:
            messages = reader.feed(content)
            if ended and not reader.between:
                raise Rejected(StatusCode.INVALID_ARGUMENT, "The request ends within a message")
            self._came += len(content)
            if self._arriving is None and not reader.between:
                self._watch_arrival()
            self._reserve(reader.size + reader.missing)
            self.hold(reader.size)
            if messages:
                self.connection.connection.earn(len(messages))
            self.messages(messages, ended)
        except (Rejected, ServingError) as error:
            self.fail(error)
            return
        if not ended:
            self.connection.connection.let_come(self.stream, self.waiting_bytes(), reader.missing)

    def _watch_arrival(self) -> None:
        self._came_then = self._came
        self._arriving = asyncio.get_running_loop().call_later(self.connection.times.slow_s, self._look_at_arrival)

    def _look_at_arrival(self) -> None:
        """Ends the call if its message comes too slowly: it would hold its memory for ever."""
        self._arriving = None
        times = self.connection.times
        if self.answered or self._reader is None or self._reader.between:
            return
        waits_for_us = self.streaming and self.waiting_bytes() > 0
        if self._came - self._came_then < times.slow_s * times.min_bytes_per_s and not waits_for_us:
            self.end_with(StatusCode.DEADLINE_EXCEEDED, "The message comes too slowly")
        else:
            self._watch_arrival()

    def waits(self) -> None:
        """Gives up a request of one message that neither comes nor ends: it would be held for ever."""
        if self.answered or self.streaming or self.stream.remote_closed or self._arriving is not None:
            return
        if self._came == self._came_then:
            self.end_with(StatusCode.DEADLINE_EXCEEDED, "The request does not end")
        self._came_then = self._came

    def waiting_bytes(self) -> int:
        """Bytes of messages that the method has not taken yet."""
        return 0

    def _reserve(self, size: int) -> None:
        """Reserves what a message of this size may become, until the end. Raises NoMemoryLeft, BodyOverMemory."""
        if size >= SHORT_BYTES:
            self.reserve(max(self.reserved, self.memory.room.cost(size, BINARY)))

    def gone(self) -> None:
        if not self.answered:
            self._over()

    # --- time ---

    def watch_time(self, more_s: float = 0.0) -> None:
        """Ends the call `more_s` after the caller's deadline."""
        if self.head.timeout_s is not None:
            if self._timer is not None:
                self._timer.cancel()
            left_s = self.started_s + self.head.timeout_s + more_s - self.application.clock()
            self._timer = asyncio.get_running_loop().call_later(max(0.0, left_s), self._late)

    def _late(self) -> None:
        if not self.answered:
            self.end_with(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")

    # --- the answer ---

    def send_message(self, content: bytes) -> None:
        """Sends a message behind those that wait. The memory of a long message is counted at once."""
        connection = self.connection
        connection.connection.send_data(self.stream, PREFIX.pack(0, len(content)), content)
        if len(content) >= LONG_BYTES:
            connection.flush()
        else:
            self.application.flush_soon(connection)

    def _check_room(self, size: int) -> None:
        """Checks that there is room for a reply. Raises NoMemoryLeft, and Rejected if it is larger than any may be."""
        memory, most = self.memory, self.application.max_reply_bytes
        if size > most:
            raise Rejected(StatusCode.RESOURCE_EXHAUSTED, f"Sent message larger than max ({size} vs. {most})")
        if (size >= LONG_BYTES or (memory.full and not self.method.calls.standard)) and not memory.has_room(size):
            raise memory.rejection()

    def reject(self, error: ServingError) -> None:
        """Answers a call that is not read, with an error. That is an event for every kind of call."""
        self.fail(error)
        if not self.method.counts:
            self.method.calls.finish(self, self.application.clock())

    def fail(self, error: Exception) -> None:
        """Answers with an error."""
        if self.answered:
            return
        if isinstance(error, Rejected):
            self.end_with(error.code, str(error))
            return
        failure = self.method.calls.failed(self, error)
        self.end_with(failure.code, failure.text, failure.metadata)

    def end_with(self, code: StatusCode, text: str, metadata: Iterable[tuple[str, str]] = ()) -> None:
        """Ends the call with a status."""
        if self.answered:
            return
        self.code = code.name
        if self.client_id and not self.began:
            metadata = (*metadata, (REQUEST_ID.decode(), self.client_id.decode()))
        block = (replies.trailers if self.began else replies.only_trailers)(code, text, metadata)
        self.connection.connection.send_headers(self.stream, block, end=True)
        self._over()
        self.application.flush_soon(self.connection)

    def _over(self) -> None:
        self.answered = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None
        self.let_go()
        self._reader = None
        self.end()

    def end(self) -> None:
        """The call is over: answered, reset, or its time has passed. Tells of it, and cancels its task."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        method = self.method
        if not method.counts:
            return
        method.calls.finish(self, self.application.clock())
        if method.administers and self._task is not None:  # else it was rejected by its head or its message
            method.calls.administered(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}{' answered' if self.answered else ''}>"
