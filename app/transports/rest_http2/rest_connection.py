"""A connection of HTTP/2 that serves REST; the server counts and drains it as one of HTTP/1.1."""

from __future__ import annotations

import asyncio
from math import inf
from typing import NamedTuple

from app.transports import CLOSE_TIMEOUT_S
from app.transports.http.connections.accepting_server import AcceptingServer
from app.transports.http.connections.served_connection import ServedConnection
from app.transports.http.connections.server_fields import ServerFields
from app.transports.http.direct.request_coalescer import RequestCoalescer
from app.transports.http2.protocol import Http2Connections, Http2Protocol
from app.transports.lingering import is_unread

#: Seconds that requests under way have before a connection that is shut down tells its client. Chosen.
_ANSWERS_S = 1.0

#: Seconds that a client has to read that it is to open no more streams. Chosen: some do not read an idle connection.
_LAST_CALL_S = 1.0


class SharedByRequests(NamedTuple):
    """The parts of a server that requests of all its connections share (RestConnection has them)."""

    coalescer: RequestCoalescer
    direct_fields: ServerFields
    plain_fields: ServerFields


class RestConnection(Http2Protocol, ServedConnection):
    """One connection, whose streams' requests begin in application.py.

    Attributes:
        coalescer: begins requests on the fast path, those of HTTP/1.1 too.
        direct_fields, plain_fields: fields of responses of the fast path, and of the application's responses.

    While the server drains, the client gets GOAWAY once no request is under way, and no ping: clients that use the
    Python library h2 (httpx) fail at any frame behind a GOAWAY.
    """

    asks_who_drains = False

    def __init__(self, shared: Http2Connections, server: AcceptingServer, parts: SharedByRequests) -> None:
        super().__init__(shared)
        self.server = server
        self.coalescer, self.direct_fields, self.plain_fields = parts
        self._busy, self._opened = False, 0  # had streams, and the last of them, when it was flushed
        self._drains = False
        self._last_call: asyncio.TimerHandle | None = None

    def flush(self) -> None:
        super().flush()
        opened, streams = self.connection.last_stream, self.connection.streams
        if not streams and (self._busy or opened > self._opened):
            self.timer.idle_since_s = self._shared.clock()
        self._busy, self._opened = bool(streams), opened
        if self._drains:
            self._drain_if_idle()

    def connection_lost(self, error: Exception | None) -> None:
        self._drains = False
        if self._last_call is not None:
            self._last_call.cancel()
        self.server.closed(self)
        super().connection_lost(error)

    def _drain_if_idle(self) -> None:
        if not self.connection.streams:
            self._drains = False
            self.drain()

    def drain(self, grace_s: float = inf) -> None:
        super().drain(grace_s)
        self.timer.last_call_within(self, _LAST_CALL_S)

    # --- the server calls these ---

    @property
    def waits_since_s(self) -> float:
        if self.ends:
            return -inf
        return inf if self.connection.streams else max(self.timer.began_s, self.timer.idle_since_s)

    @property
    def awaits_answer(self) -> bool:
        return bool(self.connection.streams)

    @property
    def is_unread(self) -> bool:
        return not self.ends and is_unread(self.transport)

    @property
    def may_bring_more(self) -> bool:
        return bool(self.connection.streams) or not (self.connection.last_stream or self.ends)

    def leave(self) -> None:
        if self.connection.settings_came or self.connection.last_stream:
            self._drains = True
            self._drain_if_idle()

    def close_if_idle(self, idle_s: float = 0.0) -> None:
        """Closes an idle connection. One with requests sends GOAWAY now, whatever the client does with it."""
        if self.connection.streams or self.is_unread:
            if self.connection.settings_came:
                self.drain()
        elif self._shared.clock() - self.waits_since_s >= idle_s:
            self.end()

    def shutdown(self) -> None:
        self.hasten()
        self._drains = True
        self._drain_if_idle()
        self._last_call = asyncio.get_running_loop().call_later(_ANSWERS_S, self.drain, CLOSE_TIMEOUT_S)
