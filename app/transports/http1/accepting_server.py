"""What a connection needs of the server that accepted it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from app.transports.http.asgi import Header
from app.transports.http1.asgi.asgi_exchange import AsgiServer
from app.transports.http1.limits import ConnectionLimits, Waiting


class AcceptingServer(AsgiServer, Protocol):
    """The server that accepted the connection: uvicorn's, see uvicorn_adapter.py."""

    limits: ConnectionLimits

    @property
    def headers(self) -> Sequence[Header]:
        """Added to every reply. A new object when it changes."""

    def opened(self, connection: Waiting, *, admit: bool) -> str:
        """Why the connection is rejected, where it may be; empty if it is admitted."""

    def closed(self, connection: Waiting) -> None: ...
    def count_reply(self) -> None:
        """Counts one more reply."""
