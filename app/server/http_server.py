"""Runs an HTTP server until a signal ends it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from functools import partial
from socket import socket
from types import FrameType
from typing import Protocol

import uvicorn

from app.config.settings import Settings
from app.server.http_app import HttpApp, HttpBackend, create_app
from app.transports.http1.connection import HttpConnection

logger = logging.getLogger(__name__)

#: The clients of the last answers may send one more request: they are still told 503 rather than cut off.
_LINGER_S = 0.5

#: After the drain only answers that are being written are left; they get this long.
_CLOSE_TIMEOUT_S = 5


class Drainable(HttpBackend, Protocol):
    """What is served, and how it ends.

    `failure` says why it could not start; `stopped`, whether nothing is left that still works.
    """

    failure: str
    stopped: bool

    async def drain(self) -> bool:
        """Waits until everything accepted is answered; False where the time for that ran out."""


class _UvicornServer(uvicorn.Server):
    """Stops when told, but drains first: while draining it still answers, with 503."""

    def __init__(self, config: uvicorn.Config, server: Drainable) -> None:
        super().__init__(config)
        self._server = server
        self._drain: asyncio.Task[None] | None = None
        self.exit_code = 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's signature
        """The first signal begins the drain, a second one ends at once."""
        if self._drain is not None:
            self.force_exit = self.should_exit = True
            return
        asyncio.get_running_loop().call_soon_threadsafe(self._begin_drain)  # thread safe: wakes the loop at once

    def _begin_drain(self) -> None:
        self._drain = self._drain or asyncio.create_task(self._drain_and_exit(), name="drain")

    async def _drain_and_exit(self) -> None:
        logger.info("Draining")
        if not await self._server.drain():
            self.exit_code = 1
        await asyncio.sleep(_LINGER_S)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """Cuts off who still waits for an answer when the time for that is over: nobody else would."""
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)

    async def on_tick(self, counter: int) -> bool:
        """Ends a process that could not start."""
        if self._server.failure:
            self.exit_code = 1
            return True
        return await super().on_tick(counter)


def serve_http(server: Drainable, settings: Settings, sockets: list[socket] | None) -> int:
    """Serves until SIGTERM or SIGINT; returns the exit code: 0 when everything accepted was answered.

    Args:
        sockets: what to listen on; None listens where the settings say.
    """
    uvicorn_server = _UvicornServer(uvicorn_config(create_app(server), settings), server)
    uvicorn_server.run(sockets)
    if not server.stopped:
        _leave(uvicorn_server.exit_code)
    return uvicorn_server.exit_code


def uvicorn_config(application: HttpApp, settings: Settings) -> uvicorn.Config:
    """How uvicorn serves the application."""
    return uvicorn.Config(
        application,
        http=partial(HttpConnection, application.inference_paths),  # type: ignore[arg-type]  # uvicorn calls it
        host=settings.host,
        port=settings.rest_port,
        log_config=None,
        access_log=False,
        proxy_headers=False,  # nothing here asks who the client was
        timeout_graceful_shutdown=_CLOSE_TIMEOUT_S,
        server_header=False,
    )


def _leave(exit_code: int) -> None:
    """Exits without waiting for a model that still loads or a batch that still runs."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(exit_code)
