"""A call of the ASGI application, for a request that the fast path does not take.

The connection frames the body and gives its content; the application gets it by `receive` and answers by `send`, as the
ASGI specification says (https://asgi.readthedocs.io/en/latest/specs/www.html).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from math import inf
from typing import Any, Protocol

from app.transports.fairness.fair_queue import Share
from app.transports.fairness.turns import Turns
from app.transports.http.asgi import Application, Header, Message, Scope
from app.transports.http.replies import internal_error
from app.transports.http1.arrival_timer import ArrivalTimer
from app.transports.http1.asgi.asgi_response import AsgiResponse, ResponseWriter
from app.transports.http1.asgi.body_framing import BadFraming, Chunked, Framing, Sized
from app.transports.http1.asgi.scope import scope_of
from app.transports.http1.head_parser import Fault, HeadParser
from app.transports.http1.pipelined import Pipelined
from app.transports.http1.status_lines import CONTINUE
from app.transports.memory.body_room import growth_of

logger = logging.getLogger(__name__)

#: The connection is not read while this many bytes of a body wait for the application (chosen; uvicorn's).
_FULL_BYTES = 64 * 1024

#: Bytes of chunks that are read in any case, and between two looks at the clock. Chosen: 1 to 3 ms of the smallest.
_SLICE_BYTES = 16 * 1024

#: Bytes of a body that are thrown away after an early response, so that the connection can be kept (chosen).
_UNREAD_BYTES = 64 * 1024

_BAD_CHUNKS = Fault(400, "The chunks of the request's body are malformed (RFC 9112, section 7.1)")


class AsgiServer(Protocol):
    """The server of the application. `lifespan_state` is what the application keeps for all requests."""

    tasks: set[asyncio.Task[None]]
    application: Application
    lifespan_state: dict[str, Any]


class AsgiConnection(ResponseWriter, Protocol):
    """The connection that the request came by."""

    transport: asyncio.Transport
    turns: Turns
    share: Share
    arrival: ArrivalTimer
    pipelined: Pipelined

    def expect_body(self, size: int, *, streaming: bool) -> None:
        """This many bytes of the body have arrived, and more are due; a stream has no least rate."""

    def read_on(self) -> None:
        """Reads what was kept back, and then the socket."""

    def refuse(self, fault: Fault) -> None:
        """Answers that the request cannot be read, and closes the connection."""

    def end(self) -> None:
        """Closes the connection after what was written."""

    def next_request(self) -> None:
        """The request is read and answered."""

    def abort(self) -> None: ...


class AsgiCall:
    """One request, and its response by the application.

    Args:
        headers: added to the response.

    Attributes:
        body_complete: the whole body has arrived.
        gone: the client has gone.
        growth: times its size that its body may become.
    """

    def __init__(self, connection: AsgiConnection, head: HeadParser, headers: Sequence[Header]) -> None:
        self._connection = connection
        self._framing: Framing = Chunked() if head.chunked else Sized(head.length)
        self._response = AsgiResponse(connection, head, headers)
        self._chunked = head.chunked
        has_body = head.chunked or head.length
        self.growth = growth_of(head.headers, head.url) if has_body else 0.0
        self._interim = head.version == "1.1"
        self._expects = head.expects
        self._body: list[bytes] = []  # what the application has not taken
        self._body_bytes = 0
        self._unread_bytes = 0  # that arrived after the response
        self._held = False  # nothing is read until the application takes what has arrived
        self._later = b""  # came, and is read when it is the connection's turn again
        self._untold = False  # there is something of the body that the application was not told
        self._news = asyncio.Event()
        self.gone = False

    @property
    def body_complete(self) -> bool:
        return self._framing.complete

    @property
    def reads(self) -> bool:
        """Does it take more bytes now?"""
        return not (self._framing.complete or self._held or self._later)

    @property
    def much_missing(self) -> bool:
        """Is so much of the body missing that the connection is not worth keeping for it?

        Or all of it, because the client waits for a 100: after the response it may leave the body out, and its next
        request would be read as the body (RFC 9110, section 10.1.1).
        """
        return self._expects or self._framing.missing > _UNREAD_BYTES

    @property
    def grows(self) -> bool:
        """Is a body being read whose length is not known, and that is kept until its end?"""
        return self._chunked and not (self._framing.complete or self._response.begun)

    @property
    def answered(self) -> bool:
        return self._response.complete

    @property
    def may_be_refused(self) -> bool:
        return not self._response.begun

    @property
    def may_interrupt(self) -> bool:
        """May an interim response be sent now?"""
        return self._interim and not self._response.begun

    # --- the connection calls these ---

    def start(self, server: AsgiServer, head: HeadParser) -> None:
        """Calls the application in a task, which the server awaits when it stops, and reads what came with the head."""
        scope = scope_of(head, self._connection.transport, server.lifespan_state)
        task = asyncio.get_running_loop().create_task(self._run(server.application, scope))
        server.tasks.add(task)
        task.add_done_callback(server.tasks.discard)
        self._connection.arrival.expect()
        self.read(head.raw[head.end :])

    def data_received(self, data: bytes) -> None:
        """Bytes behind those that `read` got."""
        if self._framing.complete:
            self._connection.pipelined.keep(data)
        elif self._later:
            self._later += data
        else:
            self.read(data)

    def read(self, data: bytes) -> None:
        """Bytes of the body, and perhaps of what is behind it."""
        try:
            content = self._framing.feed(data) if len(data) <= _SLICE_BYTES else self._read_slices(data)
        except BadFraming:
            self._connection.refuse(_BAD_CHUNKS)
            return
        if self.answered:
            self._throw_away(len(data))
        else:
            self._give(content, len(data))
        if self._later and not self.gone:
            self._connection.arrival.due_s = inf
            self._connection.transport.pause_reading()
            self._connection.turns.later(self._connection.share, self._read_on, again=True)

    def _read_slices(self, data: bytes) -> bytes:
        """Chunks may be tiny: they are read while it is the connection's turn. The rest is read later."""
        if not self._chunked:
            return self._framing.feed(data)
        framing, connection = self._framing, self._connection
        clock, began_s = connection.turns.clock, connection.turns.clock()
        end_s = connection.turns.began(connection.share, began_s)
        content, at = [framing.feed(data[:_SLICE_BYTES])], _SLICE_BYTES
        while at < len(data) and not framing.complete and clock() < end_s:
            content.append(framing.feed(data[at : at + _SLICE_BYTES]))
            at += _SLICE_BYTES
        if framing.complete:
            framing.rest += data[at:]
        else:
            self._later = data[at:]
        connection.turns.ended(connection.share, began_s)
        return b"".join(content)

    def _read_on(self) -> None:
        """It is the connection's turn again."""
        later, self._later = self._later, b""
        if later:
            self.read(later)
            if not (self._later or self._held or self.gone):
                self._connection.read_on()

    def abandon(self) -> None:
        """The client has gone, or its request cannot be read."""
        self.gone = self._response.gone = True
        self._later = b""
        self._body.clear()
        self._news.set()

    # --- the body ---

    def _give(self, content: bytes, size: int) -> None:
        """Gives content to the application, which came in `size` bytes."""
        self._body.append(content)
        self._body_bytes += len(content)
        complete = self._framing.complete
        if content or complete:
            self._expects = False
            self._untold = True
            self._news.set()
        if complete:
            self._connection.arrival.due_s = inf
            if self._framing.rest:
                self._connection.pipelined.keep_rest(self._framing.rest)
        elif self._body_bytes > _FULL_BYTES:
            self._hold()
        else:
            self._connection.expect_body(size, streaming=self._response.begun)

    def _throw_away(self, size: int) -> None:
        self._unread_bytes += size
        if self._framing.complete:
            if self._framing.rest:
                self._connection.pipelined.keep_rest(self._framing.rest)
            self._connection.next_request()
        elif self._unread_bytes > _UNREAD_BYTES:
            self._end()
        else:
            self._connection.expect_body(size, streaming=False)

    def _hold(self) -> None:
        """The application has to take some of the body before more is read."""
        self._held = True
        self._connection.arrival.due_s = inf
        self._connection.transport.pause_reading()

    def _want(self) -> None:
        """The application, or the end of the request, waits for more of the body."""
        self._connection.arrival.expect()
        if self._held:
            self._held = False
            self._connection.read_on()

    # --- the application ---

    async def _run(self, application: Application, scope: Scope) -> None:
        """Answers the request when it is its turn; an application that fails is answered for."""
        await self._connection.turns.may_step(self._connection.share)
        if self.gone:
            return
        try:
            await application(scope, self.receive, self.send)
        except Exception:
            logger.exception("A bug ended %s %s", scope["method"], scope["path"])
        if self.gone or self.answered:
            return
        if self._response.begun:
            self._connection.abort()  # so the client sees that the response is not complete
            return
        reply = internal_error()
        await self.send({"type": "http.response.start", "status": reply.status, "headers": reply.head()})
        await self.send({"type": "http.response.body", "body": reply.body})

    async def receive(self) -> Message:
        if self._expects and not self.gone:
            self._expects = False
            self._connection.write([CONTINUE])
        while not (self._untold or self.answered or self.gone):
            self._news.clear()
            if not self._framing.complete:
                self._want()
            await self._news.wait()
        if self.gone or self.answered:
            return {"type": "http.disconnect"}
        self._untold = False
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body, self._body_bytes = [], 0
        return {"type": "http.request", "body": body, "more_body": not self._framing.complete}

    async def send(self, message: Message) -> None:
        await self._connection.writable()
        if not self._response.begun:  # many may have waited for one page
            await self._connection.turns.may_step(self._connection.share)
        if self.gone:
            return
        self._response.send(message)
        if self.answered:
            self._body.clear()
            self._news.set()
            self._leave()

    def _leave(self) -> None:
        """The response is complete."""
        if not self._response.keep_alive:
            self._end()
        elif self._framing.complete:
            self._connection.next_request()
        else:
            self._want()

    def _end(self) -> None:
        """Nothing behind the response is read, neither of the body nor of what is behind that."""
        self._later = b""
        self._connection.end()
