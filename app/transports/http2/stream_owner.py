"""The owner of a stream: the answer to one request, whatever gives it.

A stream's owner hears of what comes and goes on the stream (http2/protocol.py) until the request is answered. Meanwhile
it holds bytes of the memory for clients, and reserves what its body may become. A request of which too little comes
would hold both for ever: so the connection's timer asks now and then, and the owner gives the request up.
"""

from __future__ import annotations

from app.core.errors import NoMemoryLeft, ServingError
from app.transports.http2.protocol import Http2Protocol
from app.transports.http2.stream import Stream

#: The attributes of a StreamOwner, for its subclasses: of two classes with slots none can be made (incoming_call.py).
OWNER_SLOTS = (
    "_came", "_came_then", "_head_bytes", "_held", "answered", "connection", "memory", "reserved", "stream",
)  # fmt: skip


class StreamOwner:
    """The answer to one request.

    Args:
        head_bytes: of a long head, which is held until the request is answered, beside its body.

    Attributes:
        memory: that for clients.
        reserved: bytes of its room, for what the body may become.
        answered: the end of the request is decided; nothing may decide it again.
    """

    __slots__ = tuple[str, ...]()

    connection: Http2Protocol

    def __init__(self, connection: Http2Protocol, stream: Stream, head_bytes: int = 0) -> None:
        self.connection = connection
        self.stream = stream
        self.memory = connection.memory
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
