"""What a connection needs of the server that accepted it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from app.transports.http.asgi import Header
from app.transports.http1.asgi.asgi_call import AsgiServer
from app.transports.http1.limits import ConnectionLimits, Waiting


class Http2(Protocol):
    """Serves connections that turn out to be of HTTP/2: app/transports/rest_http2/begin.py."""

    def begin(
        self, connection: Waiting, transport: asyncio.Transport, server: AcceptingServer, received: bytes
    ) -> None:
        """Takes over a connection whose client has sent these bytes, the beginning of HTTP/2's preface."""


class AcceptingServer(AsgiServer, Protocol):
    """The server that accepted the connection: uvicorn's, see uvicorn_adapter.py.

    Attributes:
        http2: serves HTTP/2; None if only HTTP/1.1 is spoken.
    """

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
