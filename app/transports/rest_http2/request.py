"""What all requests have in common, whoever answers: the memory for clients that they hold, and when they are late."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.errors import ServingError
from app.core.inference import Buffer
from app.transports.http.replies import Fault, Sendable, fault_of, fault_reply, is_large
from app.transports.http2.stream import Stream
from app.transports.memory.body_room import SHORT_BYTES as SHORT_BODY_BYTES
from app.transports.rest_http2 import responses
from app.transports.rest_http2.rest_connection import RestConnection

#: A request that is to be answered in any case is read to this length. Chosen: a fraction of a stream's first window.
SHORT_BYTES = 16 * 1024

#: Chosen: fewer bytes that wait for the client are not counted anyway (http2/protocol.py).
_MUCH_BYTES = 64 * 1024

_LATE = Fault(408, "The request did not arrive in time")


class RestRequest:
    """The owner of a stream.

    Args:
        head_bytes: of a long head, which is held until the request is answered, beside its body.

    Attributes:
        answered: its end is decided; what still comes is thrown away.
        head_only: its answer has no content, as that to HEAD (RFC 9110, section 9.3.2).
    """

    __slots__ = (
        "_came",
        "_came_then",
        "_cost",
        "_head_bytes",
        "_held",
        "_wanted",
        "answered",
        "connection",
        "head_only",
        "stream",
    )

    def __init__(self, connection: RestConnection, stream: Stream, head_bytes: int = 0) -> None:
        self.connection = connection
        self.stream = stream
        self.answered = False
        self.head_only = False
        self._head_bytes = head_bytes
        self._held = 0  # bytes of the memory for clients, the head's included
        self._cost = self._wanted = 0.0  # what is reserved for what the body may become, and should be
        self._came = self._came_then = 0  # bytes of the body, now and when it was looked at

    # --- whoever answers defines this ---

    def abandon(self) -> None:
        """The client has gone, or its request is rejected: nothing that comes of it is wanted any more."""

    # --- http2's Owner ---

    def gone(self) -> None:
        self.abandon()
        self.over()

    def sent(self) -> None:
        """Nothing follows."""

    def waits(self) -> None:
        """A body that comes too slowly would hold its memory for ever."""
        if self.answered or self.stream.remote_closed:
            return
        times = self.connection.times
        if self._came - self._came_then < self.least_bytes(times.slow_s * times.min_bytes_per_s):
            self.abandon()
            self.reject(_LATE)
        self._came_then = self._came

    def least_bytes(self, usual: float) -> float:
        """How much of the body must come between two looks."""
        return usual

    # --- memory ---

    def hold_head(self) -> bool:
        """False if the request was rejected, since there is no memory for its long head."""
        if self._head_bytes and not self.hold(0):
            self.abandon()
            self.reject_memory()
        return not self.answered

    def hold(self, size: int) -> bool:
        """Holds so many bytes of its body, until the request is answered; False if there is no memory for them."""
        held = size + self._head_bytes
        change, self._held = held - self._held, held
        if change <= 0:
            self.connection.release(-change)
        elif not self.connection.hold(change):
            return False
        return self._reserve(size)

    def growth(self) -> float:
        """Times its size that the body may become."""
        return 0.0

    def _reserve(self, size: int) -> bool:
        """Reserves what so much of a body may become; False if there is no room for it."""
        room = self.connection.memory.room
        self._wanted = room.cost(size, self.growth()) if size >= SHORT_BODY_BYTES else 0.0
        more = self._wanted - self._cost
        if more > 0 and not room.take(more):
            return False
        room.give(max(0.0, -more))
        self._cost = self._wanted
        return True

    def no_memory(self) -> ServingError:
        """Why `hold` holds no more."""
        return self.connection.memory.rejection(self._wanted, max(0.0, self._wanted - self._cost))

    # --- the answer ---

    def reject_memory(self) -> None:
        """There is no memory for it."""
        self.reject(fault_of(self.no_memory()))

    def reject(self, fault: Fault) -> None:
        """Answers with an error, if nothing was answered yet."""
        if not self.answered:
            self.send_reply(fault_reply(fault))

    def send_reply(self, reply: Sendable, timing: bytes = b"", request_id: bytes = b"") -> None:
        """Answers with a reply that no application made. `timing`, `request_id`: as responses.head."""
        connection = self.connection
        common = connection.fields.direct(connection.server.headers)
        block = responses.head(reply.status, common, reply.head(), timing, request_id)
        self.respond(block, () if self.head_only else reply.pieces)

    def respond(self, block: bytes, pieces: Sequence[Buffer]) -> None:
        """Answers with a field list and content."""
        sending = self.connection.connection
        if is_large(pieces):
            sending.send_headers(self.stream, block)
            sending.send_data(self.stream, *pieces, end=True)
        else:
            content = pieces[0] if len(pieces) == 1 and isinstance(pieces[0], bytes) else b"".join(pieces)
            sending.send_response(self.stream, block, content)
        self.over()
        self.connection.server.count_reply()
        self.send_soon()

    def send_soon(self) -> None:
        """What was written is sent at the end of the turn; much that waits at once, so that it counts."""
        if self.connection.connection.unsent > _MUCH_BYTES:
            self.connection.flush()
        else:
            self.connection.flush_soon()

    def over(self) -> None:
        """It is answered, or nobody waits for the answer."""
        self.answered = True
        self.stream.owner = None
        if self._held:
            self._head_bytes = 0
            self.hold(0)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.stream!r}{', answered' if self.answered else ''}>"
