"""One stream of a connection: what may still come and go on it, what waits to be sent (RFC 9113, section 5), its owner.

A stream's owner hears of what comes and goes on the stream (protocol.py) until the request is answered. Meanwhile it
holds bytes of the memory for clients, and reserves what its body may become. A request of which too little comes would
hold both for ever: so the connection's timer asks now and then, and the owner gives the request up.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any

from app.core.errors import NoMemoryLeft, ServingError
from app.transports.memory.client_memory import ClientMemory

Buffer = bytes | memoryview

#: Chosen: a burst of so many streams may be reset while the client still sends; in 8 KiB.
_MOST_RESET = 2048


class Stream:
    """A stream that is open, or half closed on one side.

    Attributes:
        owner: its StreamOwner; None before the request has begun, and once no owner needs its events.
        remote_closed: the client has sent all; local_closed: all was given to `SansIoConnection` to be sent.
        send_window: bytes that the client lets us send; below 0 if it took some back.
        receive_window: bytes that the client may still send.
        content_left: bytes that are to come by content-length; -1 if it was not given.
        queue: data that wait for a window, then the trailers; None while nothing waits.
        unsent: bytes of data in the queue, which is never empty.
        parked: they wait for the client to open `send_window`.
    """

    __slots__ = (
        "content_left", "ends", "id", "local_closed", "owner", "parked", "queue", "receive_window", "remote_closed",
        "send_window", "trailers", "unsent",
    )  # fmt: skip

    def __init__(self, id_: int, send_window: int, receive_window: int) -> None:
        self.id = id_
        self.owner: Any = None
        # What comes.
        self.remote_closed = False
        self.receive_window = receive_window
        self.content_left = -1
        # What goes.
        self.local_closed = False
        self.send_window = send_window
        self.queue: deque[Buffer] | None = None
        self.unsent = 0
        self.parked = False
        self.ends = False  # END_STREAM follows what is in the queue
        self.trailers: bytes | None = None  # a block that follows what is in the queue

    def __repr__(self) -> str:
        states = "open", "half closed (remote)", "half closed (local)", "closed"
        waits = f", {self.unsent} bytes wait" if self.unsent else ""
        return f"<Stream {self.id} {states[self.remote_closed + 2 * self.local_closed]}{waits}>"


#: The attributes of a StreamOwner, for its subclasses: of two classes with slots none can be made (incoming_call.py).
OWNER_SLOTS = (
    "_came", "_came_then", "_head_bytes", "_held", "answered", "connection", "memory", "reserved", "stream",
)  # fmt: skip


class StreamOwner:
    """The owner of a stream, which answers its request.

    Args:
        head_bytes: bytes of a long head, which is held until the request is answered, beside its body.

    Attributes:
        connection: the Http2Protocol.
        memory: that for clients.
        reserved: bytes of its room, for what the body may become.
        answered: the end of the request is decided; nothing may decide it again.
    """

    __slots__ = tuple[str, ...]()

    def __init__(self, connection: Any, stream: Stream, head_bytes: int = 0) -> None:
        self.connection = connection
        self.stream = stream
        self.memory: ClientMemory = connection.memory
        self.answered = False
        self.reserved = 0.0
        self._head_bytes = head_bytes
        self._held = 0  # bytes of the memory for clients
        self._came = self._came_then = 0  # bytes of the body, now and at the last look

    # --- the kinds of requests define these ---

    def data(self, content: bytes, ended: bool) -> None:
        """More of the request's content, and whether it is all."""
        raise NotImplementedError

    def gone(self) -> None:
        """The stream was reset, or the connection lost: nothing can be answered any more."""
        raise NotImplementedError

    def sent(self) -> None:
        """All data that were given to be sent are on their way."""

    def waits(self) -> None:
        """The stream is open for `Times.slow_s` at least, or again as long. Nothing waits to be sent."""
        raise NotImplementedError

    def fail(self, error: ServingError) -> None:
        """Answers with an error."""
        raise NotImplementedError

    # --- memory ---

    def hold_head(self) -> bool:
        """Holds a long head. False if the request was answered, since there is no memory for it."""
        if self._head_bytes:
            try:
                self.hold(0)
            except NoMemoryLeft as error:
                self.fail(error)
        return not self.answered

    def hold(self, size: int) -> None:
        """Holds this many bytes beside those of the head, in place of those before. Raises NoMemoryLeft."""
        size += self._head_bytes
        change, self._held = size - self._held, size
        if change > 0:
            if not self.connection.hold(change):
                raise self.memory.rejection()
        elif change:
            self.connection.release(-change)

    def reserve(self, cost: float) -> None:
        """Reserves what the body may become, in place of what was reserved. Raises NoMemoryLeft, BodyOverMemory."""
        room, more = self.memory.room, cost - self.reserved
        if not room.take(more):
            raise self.memory.rejection(cost, more)
        room.give(-more)
        self.reserved = cost

    def let_go(self) -> None:
        """Gives back all that it holds and has reserved."""
        if self.reserved:
            self.memory.room.give(self.reserved)
            self.reserved = 0.0
        if self._held:
            self.connection.release(self._held)
            self._held = 0


class ResetStreams:
    """The streams opened last that we have reset: frames that were under way for them are no error."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers = array("I")

    def add(self, number: int) -> None:
        if not self._numbers:
            self._numbers = array("I", bytes(4 * _MOST_RESET))
        self._numbers[number // 2 % _MOST_RESET] = number

    def __contains__(self, number: int) -> bool:
        return bool(self._numbers) and self._numbers[number // 2 % _MOST_RESET] == number

    def __repr__(self) -> str:
        return f"<ResetStreams {sorted({*self._numbers} - {0})[-5:]}>"
