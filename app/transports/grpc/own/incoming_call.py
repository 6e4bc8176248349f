"""A call from its first frame to its end, as far as it does not matter who answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from grpc import StatusCode

from app.core.errors import NoMemoryLeft, ServingError
from app.transports.grpc.codes import failure_of
from app.transports.grpc.held_messages import LONG_BYTES
from app.transports.grpc.own import replies
from app.transports.grpc.own.messages import PREFIX, Message, MessageReader, Rejected
from app.transports.grpc.own.request_head import GrpcHead
from app.transports.http2.protocol import Http2Protocol
from app.transports.http2.stream import Stream
from app.transports.memory.body_room import BINARY, SHORT_BYTES
from app.transports.request_id import REQUEST_ID


class SharedByCalls(Protocol):
    """What all calls of a server share: its GrpcApplication."""

    max_message_bytes: int
    tasks: set[asyncio.Task[None]]
    #: Begins calls that are answered at once: CallCoalescer.
    coalescer: Any

    @property
    def clock(self) -> Callable[[], float]:
        """Monotonic seconds."""

    def flush_soon(self, connection: Http2Protocol) -> None:
        """What was answered is sent at the end of this turn of the event loop."""

    def answer_in_task(self, call: Any, message: Message) -> None:
        """An AtOnceCall that cannot be answered at once is answered by its handler."""


class IncomingCall:
    """The owner of a stream: cuts its content into messages, and ends it.

    Attributes:
        streaming: its request may be of any number of messages, at any time.
        began: the head of its answer was sent.
        answered: its end is decided; nothing may decide it again.
        began_s: monotonic seconds.
    """

    __slots__ = (
        "_arriving",
        "_came",
        "_came_then",
        "_cost",
        "_held",
        "_reader",
        "_timer",
        "answered",
        "application",
        "began_s",
        "connection",
        "head",
        "stream",
    )

    streaming = began = False

    def __init__(self, application: SharedByCalls, connection: Http2Protocol, stream: Stream, head: GrpcHead) -> None:
        self.application = application
        self.connection = connection
        self.stream = stream
        self.head = head
        self.began_s = application.clock()
        self.answered = False
        self._reader: MessageReader | None = None
        self._held = 0
        self._cost = 0.0  # what is reserved for what its longest message may become
        self._timer: asyncio.TimerHandle | None = None
        # While a message arrives.
        self._arriving: asyncio.TimerHandle | None = None
        self._came = self._came_then = 0  # bytes, now and when it was looked at

    # --- whoever answers defines these ---

    def messages(self, messages: list[Message], ended: bool) -> None:
        """Whole messages came; `ended`: no more will. Raises Rejected, ServingError."""
        raise NotImplementedError

    def end(self) -> None:
        """The call is over: answered, reset, or its time has passed."""

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
            self._hold(reader.size)
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
        """A message that comes too slowly would hold its memory for ever."""
        self._arriving = None
        times = self.connection.times
        if self.answered or self._reader is None or self._reader.between:
            return
        waits_for_us = self.streaming and self.waiting_bytes() > 0
        if self._came - self._came_then < times.slow_s * times.min_bytes_per_s and not waits_for_us:
            self.answer_failure(StatusCode.DEADLINE_EXCEEDED, "The message comes too slowly")
        else:
            self._watch_arrival()

    def waits(self) -> None:
        """A request of one message that neither comes nor ends would be held for ever."""
        if self.answered or self.streaming or self.stream.remote_closed or self._arriving is not None:
            return
        if self._came == self._came_then:
            self.answer_failure(StatusCode.DEADLINE_EXCEEDED, "The request does not end")
        self._came_then = self._came

    def waiting_bytes(self) -> int:
        """Of messages that were not taken yet."""
        return 0

    def hold_head(self) -> bool:
        """Holds a long head for as long as the call goes on. False if it ended, since there is no memory for it."""
        try:
            self._hold(0)
        except NoMemoryLeft as error:
            self.fail(error)
        return not self.answered

    def _hold(self, size: int) -> None:
        """Holds so many bytes of a message that is not whole. Raises NoMemoryLeft."""
        size += self.head.long_bytes
        change = size - self._held
        self._held = size
        if change > 0:
            if not self.connection.hold(change):
                raise self._no_memory()
        elif change:
            self.connection.release(-change)

    def _reserve(self, size: int) -> None:
        """Reserves what a message of this size may become, until the end. Raises NoMemoryLeft, BodyOverMemory."""
        if size < SHORT_BYTES:
            return
        memory = self.connection.memory
        cost = memory.room.cost(size, BINARY)
        more = max(0.0, cost - self._cost)
        if not memory.room.take(more):
            raise memory.rejection(cost, more)
        self._cost += more

    def _no_memory(self) -> ServingError:
        return self.connection.memory.rejection()

    def gone(self) -> None:
        if not self.answered:
            self._over()

    def sent(self) -> None:
        """All that was given to be sent is on its way."""

    # --- time ---

    def watch_time(self, more_s: float = 0.0) -> None:
        """Ends the call once the caller's time is over, and `more_s`."""
        if self.head.timeout_s is not None:
            if self._timer is not None:
                self._timer.cancel()
            left_s = self.began_s + self.head.timeout_s + more_s - self.application.clock()
            self._timer = asyncio.get_running_loop().call_later(max(0.0, left_s), self._late)

    def _late(self) -> None:
        if not self.answered:
            self.answer_failure(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")

    # --- the answer ---

    def send_message(self, content: bytes) -> None:
        """Sends a message, behind those that wait. A long one is counted at once."""
        connection = self.connection
        connection.connection.send_data(self.stream, PREFIX.pack(0, len(content)), content)
        if len(content) >= LONG_BYTES:
            connection.flush()
        else:
            self.application.flush_soon(connection)

    def fail(self, error: Exception) -> None:
        """Answers with an error."""
        if isinstance(error, Rejected):
            self.answer_failure(error.code, str(error))
            return
        failure = failure_of(error, self.head.path.rpartition("/")[2])
        self.answer_failure(failure.code, failure.text, failure.metadata)

    def answer_failure(self, code: StatusCode, text: str, metadata: Iterable[tuple[str, str | bytes]] = ()) -> None:
        """Ends the call with a status."""
        if self.answered:
            return
        if self.head.request_id and not self.began:
            metadata = (*metadata, (REQUEST_ID.decode(), self.head.request_id.decode()))
        block = (replies.trailers if self.began else replies.only_trailers)(code.value[0], text, metadata)
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
        self._release_held()
        self._reader = None
        self.end()

    def _release_held(self) -> None:
        if self._cost:
            self.connection.memory.room.give(self._cost)
            self._cost = 0.0
        if self._held:
            self.connection.release(self._held)
            self._held = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.head.path}{' answered' if self.answered else ''}>"


def peer_name(connection: Http2Protocol) -> str:
    """gRPC's name of who sent it, such as ipv4:127.0.0.1:5000 or ipv6:%5B::1%5D:5000."""
    host, port = connection.peer
    if not host:
        return "unix:"
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"
