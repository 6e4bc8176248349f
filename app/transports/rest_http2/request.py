"""A request of REST over HTTP/2, whatever answers it: its memory, its rejection and the way of its answer."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.errors import ServingError
from app.core.inference import Buffer
from app.transports.http.replies import LATE, Fault, Sendable, fault_of, fault_reply, is_large
from app.transports.http2.stream import OWNER_SLOTS, Stream, StreamOwner
from app.transports.memory.body_room import SHORT_BYTES as SHORT_BODY_BYTES
from app.transports.rest_http2 import responses
from app.transports.rest_http2.rest_connection import RestConnection

#: A request that is to be answered in any case is read to this length. Chosen: a fraction of a stream's first window.
SHORT_BYTES = 16 * 1024

#: Chosen: fewer bytes that wait for the client are not counted anyway (http2/protocol.py).
_MUCH_BYTES = 64 * 1024


class RestRequest(StreamOwner):
    """One request of REST.

    Attributes:
        head_only: its answer has no content, as that to HEAD (RFC 9110, section 9.3.2).
    """

    __slots__ = (*OWNER_SLOTS, "head_only")

    connection: RestConnection

    def __init__(self, connection: RestConnection, stream: Stream, head_bytes: int = 0) -> None:
        super().__init__(connection, stream, head_bytes)
        self.head_only = False

    # --- the kinds of requests define these ---

    def abandon(self) -> None:
        """The client has gone, or its request is rejected: nothing that comes of it is wanted any more."""

    def growth(self) -> float:
        """Times its size that the body may become."""
        return 0.0

    # --- the stream's connection calls these ---

    def gone(self) -> None:
        self.abandon()
        self.over()

    def waits(self) -> None:
        if self.answered or self.stream.remote_closed:
            return
        if self._came - self._came_then < self.least_bytes():
            self.abandon()
            self.reject(LATE)
        self._came_then = self._came

    def least_bytes(self) -> float:
        """How much of the body must come between two looks."""
        times = self.connection.times
        return times.slow_s * times.min_bytes_per_s

    # --- memory ---

    def hold_body(self, size: int) -> None:
        """Holds this many bytes of the body, until the request is answered. Raises NoMemoryLeft, BodyOverMemory."""
        self.hold(size)
        if size >= SHORT_BODY_BYTES:
            self.reserve(self.memory.room.cost(size, self.growth()))
        elif self.reserved:
            self.reserve(0.0)

    # --- the answer ---

    def fail(self, error: ServingError) -> None:
        self.abandon()
        self.reject(fault_of(error))

    def reject(self, fault: Fault) -> None:
        """Answers with an error, if nothing was answered yet."""
        if not self.answered:
            self.send_reply(fault_reply(fault))

    def send_reply(self, reply: Sendable, timing: bytes = b"", request_id: bytes = b"") -> None:
        """Answers with a reply that no application made. `timing`, `request_id`: as responses.head."""
        connection = self.connection
        common = connection.direct_fields.encoded(connection.server.headers)
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
            sending.send_whole(self.stream, block, content)
        self.over()
        self.connection.server.count_reply()
        self.send_soon()

    def send_soon(self) -> None:
        """Sends written bytes at the end of the turn; if many wait, now, so that they are counted."""
        if self.connection.connection.unsent > _MUCH_BYTES:
            self.connection.flush()
        else:
            self.connection.flush_soon()

    def over(self) -> None:
        """Ends the request: it is answered, or the client has gone."""
        self.answered = True
        self.stream.owner = None
        self.let_go()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.stream!r}{', answered' if self.answered else ''}>"
