"""A request of HTTP/1.1 that the ASGI application answers (http/asgi_request.py).

A `Framing` finds the end of its body. The response has a length, or is in chunks, or ends with the connection; the
request decides whether the connection is kept for another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Protocol

from app.core.inference import Buffer
from app.transports.http.asgi import Header
from app.transports.http.asgi_request import AsgiRequest, SharingConnection
from app.transports.http.connections.accepting_server import AcceptingServer
from app.transports.http.replies import Fault, header_lines
from app.transports.http1.arrival_timer import ArrivalTimer
from app.transports.http1.body_framing import BadFraming, Chunked, Framing, Sized
from app.transports.http1.head_parser import HeadParser
from app.transports.http1.pipelined import Pipelined
from app.transports.http1.status_lines import CONTINUE, STATUS_LINES
from app.transports.memory.body_room import growth_of

#: The connection is not read while this many bytes of a body wait for the application (chosen; uvicorn's).
_FULL_BYTES = 64 * 1024

#: Bytes of chunks that are read between two looks at the clock. Chosen: 1 to 3 ms of the smallest chunks.
_SLICE_BYTES = 16 * 1024

#: Up to this many bytes of a body are thrown away after an early response, to keep the connection (chosen).
_UNREAD_BYTES = 64 * 1024

_BAD_CHUNKS = Fault(400, "The chunks of the request's body are malformed (RFC 9112, section 7.1)")


class AsgiConnection(SharingConnection, Protocol):
    """The connection that the request came by."""

    arrival: ArrivalTimer
    pipelined: Pipelined

    @property
    def may_stay(self) -> bool:
        """May the client send another request afterwards?"""

    def write(self, pieces: Sequence[Buffer]) -> None: ...
    async def writable(self) -> None:
        """Waits until the client has read most of what was written."""

    def expect_body(self, size: int, *, streaming: bool) -> None:
        """This many bytes of the body have arrived, and more are due; a stream has no least rate."""

    def read_on(self) -> None:
        """Reads the bytes that were kept back, and then the socket."""

    def refuse(self, fault: Fault) -> None:
        """Answers that the request cannot be read, and closes the connection."""

    def end(self) -> None:
        """Closes the connection after what was written."""

    def next_request(self) -> None:
        """The request is read and answered."""

    def abort(self) -> None: ...


class Http1AsgiRequest(AsgiRequest):
    """A request on a connection of HTTP/1.1, and its response by the application.

    Attributes:
        growth: times its size that its body may become.
    """

    def __init__(self, connection: AsgiConnection, server: AcceptingServer, head: HeadParser) -> None:
        super().__init__(server, connection, head)
        self._connection = connection
        # The body.
        self._framing: Framing = Chunked() if head.chunked else Sized(head.length)
        self._chunked = head.chunked
        self.growth = growth_of(head.headers, head.target) if head.chunked or head.length else 0.0
        self._unread_bytes = 0  # of the body, read after the response
        self._held = False  # the application has yet to take what was read; until then reading is paused
        self._later = b""  # bytes that wait until the connection has its share of the loop again
        # The response.
        self._http_1_0 = head.version == "1.0"
        self._keep_alive = head.keep_alive
        self._writes_chunks = False

    # --- what the connection asks ---

    @property
    def reads(self) -> bool:
        """May the connection read more bytes for the request now?"""
        return not (self._framing.complete or self._held or self._later)

    @property
    def much_missing(self) -> bool:
        """Is so much of the body missing that the connection is closed rather than read to the body's end?

        Also true if the client waits for a 100: after the response it may leave the body out, and then its next request
        would be read as the body (RFC 9110, section 10.1.1).
        """
        return self.expects or self._framing.missing > _UNREAD_BYTES

    @property
    def grows(self) -> bool:
        """Is a body of unknown length being read, and kept until its end?"""
        return self._chunked and not (self._framing.complete or self.begun)

    @property
    def may_interrupt(self) -> bool:
        """May an interim response be sent now?"""
        return not (self._http_1_0 or self.begun)

    # --- the connection calls these ---

    def begin(self, behind: bytes) -> None:
        """Calls the application, and reads the bytes behind the head."""
        self.start()
        self._connection.arrival.expect()
        self.read(behind)

    def data_received(self, data: bytes) -> None:
        """Takes bytes that follow those of `begin`."""
        if self._framing.complete:
            self._connection.pipelined.keep(data)
        elif self._later:
            self._later += data
        else:
            self.read(data)

    def abandon(self) -> None:
        """The client has gone, or its request cannot be read."""
        self._later = b""
        super().abandon()

    # --- the body ---

    def read(self, data: bytes) -> None:
        """Bytes of the body, and perhaps of the next request."""
        # 1. The content in these bytes.
        try:
            content = self._framing.feed(data) if len(data) <= _SLICE_BYTES else self._read_slices(data)
        except BadFraming:
            self._connection.refuse(_BAD_CHUNKS)
            return

        # 2. The application gets the content; after the response it is thrown away.
        if self.answered:
            self._throw_away(len(data))
        else:
            self._give(content, len(data))

        # 3. The rest waits until the connection has its share of the loop again.
        if self._later and not self.left:
            self._connection.arrival.due_s = inf
            self._connection.transport.pause_reading()
            self.turns.later(self.share, self._read_on, again=True)

    def _read_slices(self, data: bytes) -> bytes:
        """Reads chunks, which may be tiny, while the connection has its share of the loop. The rest is read later."""
        if not self._chunked:
            return self._framing.feed(data)
        framing, turns = self._framing, self.turns
        clock, began_s = turns.clock, turns.clock()
        end_s = turns.began(self.share, began_s)
        content, at = [framing.feed(data[:_SLICE_BYTES])], _SLICE_BYTES
        while at < len(data) and not framing.complete and clock() < end_s:
            content.append(framing.feed(data[at : at + _SLICE_BYTES]))
            at += _SLICE_BYTES
        if framing.complete:
            framing.rest += data[at:]
        else:
            self._later = data[at:]
        turns.ended(self.share, began_s)
        return b"".join(content)

    def _read_on(self) -> None:
        """The connection has its share of the loop again."""
        later, self._later = self._later, b""
        if later:
            self.read(later)
            if not (self._later or self._held or self.left):
                self._connection.read_on()

    def _give(self, content: bytes, size: int) -> None:
        """Gives the application content, which took `size` bytes on the socket."""
        complete = self._framing.complete
        self.feed(content, ended=complete)
        if complete:
            self._connection.arrival.due_s = inf
            self._keep_rest()
        elif self.body_bytes > _FULL_BYTES:
            self._held = True
            self._connection.arrival.due_s = inf
            self._connection.transport.pause_reading()
        else:
            self._connection.expect_body(size, streaming=self.begun)

    def _throw_away(self, size: int) -> None:
        self._unread_bytes += size
        if self._framing.complete:
            self._keep_rest()
            self._connection.next_request()
        elif self._unread_bytes > _UNREAD_BYTES:
            self._end()
        else:
            self._connection.expect_body(size, streaming=False)

    def _keep_rest(self) -> None:
        """Keeps the bytes behind the body: they are the next request's."""
        if self._framing.rest:
            self._connection.pipelined.keep_rest(self._framing.rest)

    # --- the driver asks these ---

    @property
    def more_comes(self) -> bool:
        return not self._framing.complete

    def send_continue(self) -> None:
        self._connection.write([CONTINUE])

    def wanted(self) -> None:
        self._connection.arrival.expect()
        if self._held:
            self._held = False
            self._connection.read_on()

    async def writable(self, status: int) -> None:  # noqa: ARG002 - of a stream of HTTP/2
        await self._connection.writable()

    def encode_head(self, status: int, headers: Sequence[Header], *, has_body: bool, sized: bool) -> bytes:
        lines = [STATUS_LINES[status], header_lines((*self.server.headers, *headers))]

        # 1. How the body ends: by its length, by its last chunk, or with the connection (RFC 9112, section 6.3).
        self._writes_chunks = has_body and not (sized or self._http_1_0)
        if self._writes_chunks:
            lines.append(b"transfer-encoding: chunked\r\n")
        ends_with_connection = has_body and not (sized or self._writes_chunks)

        # 2. Whether another request may follow (section 9.3).
        closing = b"close" in dict(headers).get(b"connection", b"").lower()
        stays = self._connection.may_stay and not ends_with_connection
        self._keep_alive = self._keep_alive and stays and not closing
        if not self._keep_alive and not closing:
            lines.append(b"connection: close\r\n")
        elif self._keep_alive and self._http_1_0:
            lines.append(b"connection: keep-alive\r\n")
        return b"".join([*lines, b"\r\n"])

    def write(self, head: bytes, body: Buffer, *, ends: bool) -> None:
        pieces: list[Buffer] = [head] if head else []
        if len(body):
            pieces += [b"%x\r\n" % len(body), body, b"\r\n"] if self._writes_chunks else [body]
        if ends and self._writes_chunks:
            pieces.append(b"0\r\n\r\n")
        if pieces:
            self._connection.write(pieces)
        if ends:
            self._leave()

    def abort(self) -> None:
        self._connection.abort()

    # --- the end ---

    def _leave(self) -> None:
        """Lets the connection go on once the response is complete: it ends, or reads what is left of the body first."""
        if not self._keep_alive:
            self._end()
        elif self._framing.complete:
            self._connection.next_request()
        else:  # the rest of the body is read and thrown away
            self.wanted()

    def _end(self) -> None:
        """Closes the connection: neither the rest of the body nor a next request is read."""
        self._later = b""
        self._connection.end()
