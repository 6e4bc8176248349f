"""The owner of a stream: the answer to one request, whatever gives it.

A stream's owner hears of what comes and goes on the stream (http2/protocol.py) until the request is answered. Meanwhile
it holds bytes of the memory for clients, and reserves what its body may become. A request of which too little comes
would hold both for ever: so the connection's timer asks now and then, and the owner gives the request up.
"""

from __future__ import annotations

from app.core.errors import ServingError
from app.transports.http2.protocol import Http2Protocol
from app.transports.http2.stream import Stream


class StreamOwner:
    """The answer to one request.

    Attributes:
        answered: the end of the request is decided; nothing may decide it again.
    """

    __slots__ = ("_came", "_came_then", "_cost", "_held", "_wanted", "answered", "connection", "stream")

    connection: Http2Protocol

    def __init__(self, connection: Http2Protocol, stream: Stream) -> None:
        self.connection = connection
        self.stream = stream
        self.answered = False
        self._held = 0  # bytes of the memory for clients
        self._cost = self._wanted = 0.0  # reserved for what the body may become, and asked for at last
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

    def late(self) -> None:
        """Too little of the request has come."""
        raise NotImplementedError

    def least_bytes(self) -> float:
        """How much of the body must come between two looks."""
        raise NotImplementedError

    # --- time ---

    def waits(self) -> None:
        """The stream is open for `Times.slow_s` at least, or again as long. Nothing waits to be sent."""
        if self.answered or self.stream.remote_closed:
            return
        if self._came - self._came_then < self.least_bytes():
            self.late()
        self._came_then = self._came

    # --- memory ---

    def hold(self, size: int) -> bool:
        """Holds this many bytes, in place of those before; False if there is no memory for them."""
        change, self._held = size - self._held, size
        if change > 0:
            return self.connection.hold(change)
        self.connection.release(-change)
        return True

    def reserve(self, cost: float) -> bool:
        """Reserves what the body may become, in place of what was reserved; False if there is no room for it."""
        self._wanted = cost
        room, more = self.connection.memory.room, cost - self._cost
        if more > 0 and not room.take(more):
            return False
        room.give(max(0.0, -more))
        self._cost = cost
        return True

    def no_memory(self) -> ServingError:
        """Why `hold` or `reserve` gave nothing."""
        return self.connection.memory.rejection(self._wanted, max(0.0, self._wanted - self._cost))

    def let_go(self) -> None:
        """Gives back all that it holds and has reserved."""
        if self._cost:
            self.connection.memory.room.give(self._cost)
            self._cost = 0.0
        if self._held:
            self.connection.release(self._held)
            self._held = 0
