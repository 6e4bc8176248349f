"""The server that accepted a connection, as the connection sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from app.transports.http.asgi import Application, Header
from app.transports.http.connections.connection_limits import ConnectionLimits, Waiting


class UpgradeRequest(NamedTuple):
    """A request of HTTP/1.1, without a body, that asks to go on as HTTP/2 (RFC 7540, section 3.2).

    settings: the payload of a frame SETTINGS.
    fields: of the same request in HTTP/2, the pseudo fields first.
    size: bytes of its head.
    """

    settings: bytes
    fields: Sequence[Header]
    size: int


class Http2(Protocol):
    """The part of the server that serves connections of HTTP/2: app/transports/rest_http2/begin.py."""

    def begin(
        self, connection: Waiting, transport: asyncio.Transport, server: AcceptingServer, received: bytes
    ) -> None:
        """Takes over a connection whose client has sent these bytes, the beginning of HTTP/2's preface."""

    def upgrade(
        self, connection: Waiting, transport: asyncio.Transport, server: AcceptingServer, asked: UpgradeRequest
    ) -> bool:
        """Takes over a connection whose request asks for HTTP/2; False if it may not."""


class AcceptingServer(Protocol):
    """The server that accepted the connection: uvicorn's, see http1/uvicorn_adapter.py.

    Attributes:
        application: the ASGI application, which answers what the fast path does not take.
        lifespan_state: what the application keeps for all requests.
        tasks: of requests; the server awaits them when it stops.
        http2: serves HTTP/2; None if only HTTP/1.1 is spoken.
    """

    application: Application
    lifespan_state: dict[str, Any]
    tasks: set[asyncio.Task[None]]
    limits: ConnectionLimits
    http2: Http2 | None

    @property
    def headers(self) -> Sequence[Header]:
        """Added to every reply. A new object when it changes."""

    def opened(self, connection: Waiting, *, admit: bool) -> str:
        """Why the connection is rejected, where it may be; empty if it is admitted."""

    def replaced(self, connection: Waiting, by: Waiting) -> None:
        """The same socket goes on as another connection."""

    def closed(self, connection: Waiting) -> None: ...
    def count_reply(self) -> None:
        """Counts one more reply."""
