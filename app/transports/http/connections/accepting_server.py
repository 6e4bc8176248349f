"""The server of one port, as the connections that it accepted see it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from app.transports.http.asgi import Application, Header
from app.transports.http.connections.connection_limits import Connections, Waiting


class Http2(Protocol):
    """The part of the server that serves connections of HTTP/2: app/transports/rest_http2/begin.py."""

    def begin(
        self, connection: Waiting, transport: asyncio.Transport, server: AcceptingServer, received: bytes
    ) -> None:
        """Takes over a connection whose client has sent these bytes, the beginning of HTTP/2's preface."""


class UvicornState(Protocol):
    """uvicorn's ServerState, as far as connections use it (http1/uvicorn_adapter.py).

    Attributes:
        connections, tasks: open now; uvicorn waits for them when it stops.
        default_headers: the headers of every reply, Date among them; a new list each second.
        total_requests: how many were answered.
    """

    connections: set[Any]
    tasks: set[asyncio.Task[None]]
    default_headers: list[Header]
    total_requests: int


class AcceptingServer:
    """The server that accepted the connections of one port.

    Args:
        connections: the connections of all ports of the process.
        state: counts the connections of this server.

    Attributes:
        http2: serves HTTP/2; None if only HTTP/1.1 is spoken.
        application: the ASGI application, which answers what the fast path does not take.
        lifespan_state: what the application keeps for all requests.
        tasks: the tasks of requests; the server awaits them when it stops.
    """

    def __init__(
        self,
        connections: Connections,
        http2: Http2 | None,
        application: Application,
        state: UvicornState,
        lifespan_state: dict[str, Any],
    ) -> None:
        self.http2 = http2
        self.application = application
        self.lifespan_state = lifespan_state
        self.limits = connections.limits
        self.tasks = state.tasks
        self._connections = connections
        self._state = state

    @property
    def headers(self) -> Sequence[Header]:
        """Added to every reply. A new object when it changes."""
        return self._state.default_headers

    def opened(self, connection: Waiting, *, admit: bool) -> str:
        """Why the connection is rejected, where it may be; empty if it is admitted."""
        rejected = self._connections.admit(connection) if admit else ""
        if not rejected:
            self._state.connections.add(connection)
        return rejected

    def replaced(self, connection: Waiting, by: Waiting) -> None:
        """The same socket goes on as another connection."""
        self._connections.replace(connection, by)
        self._state.connections.discard(connection)
        self._state.connections.add(by)

    def closed(self, connection: Waiting) -> None:
        self._connections.remove(connection)
        self._state.connections.discard(connection)

    def count_reply(self) -> None:
        self._state.total_requests += 1
