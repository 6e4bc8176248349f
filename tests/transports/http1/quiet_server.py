"""The HTTP server of an application on sockets, in a test's event loop and without signals."""

from __future__ import annotations

import socket
from contextlib import nullcontext
from typing import Any

from app.transports.http.asgi import Application
from app.transports.http.connections.connection_limits import ConnectionLimits, Connections
from app.transports.http.direct.fast_path import FastPath
from app.transports.http1.uvicorn_adapter import Drainable, DrainingServer, HttpPort


class Drained:
    """Nothing is left to drain."""

    failure = ""
    grace_s = 0.0

    def begin_grace(self) -> None: ...

    async def end_grace(self) -> None: ...

    async def drain(self) -> bool:
        return True

    def abandon(self) -> None: ...


class QuietServer(DrainingServer):
    """Leaves the signals to pytest, and the application without a lifespan."""

    def __init__(
        self, application: Application, connections: Connections, port: HttpPort, server: Drainable | None = None
    ) -> None:
        super().__init__(application, server or Drained(), connections, [port])
        self.config.lifespan = "off"

    def capture_signals(self) -> Any:
        return nullcontext()


def server_of(
    application: Application,
    fast_path: FastPath,
    listener: socket.socket,
    limits: ConnectionLimits | None = None,
    server: Drainable | None = None,
) -> QuietServer:
    """On one port, without HTTP/2 and TLS."""
    connections = Connections(limits or ConnectionLimits(), fast_path.clock)
    return QuietServer(application, connections, HttpPort([listener], fast_path), server)
