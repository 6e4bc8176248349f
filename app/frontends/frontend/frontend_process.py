"""A frontend process: `python -m app.frontends.frontend.frontend_process`, started by the supervisor."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from app.frontends.frontend.frontend_server import FrontendServer
from app.frontends.process_arguments import END_AT_ONCE, END_WITHOUT_GRACE, ProcessArguments, received, when_parent_ends
from app.log_lines import configure
from app.server.http_server import serve_http
from app.server.memory import keep_freed_memory, spare_from_collection
from app.transports.grpc.options import GrpcOptions
from app.transports.ports import share_port
from app.transports.tls.texts import TlsError

logger = logging.getLogger("app.frontends.frontend.frontend_process")  # this is __main__


class SupervisedFrontend(FrontendServer):
    """Ends when the supervisor does."""

    async def start(self) -> None:
        when_parent_ends(self._end)
        asyncio.get_running_loop().add_signal_handler(END_WITHOUT_GRACE, self._end_without_grace)
        await super().start()

    def _end(self) -> None:
        if not self.engine.draining.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    def _end_without_grace(self) -> None:
        self.skip_grace()
        self._end()


def serve(arguments: ProcessArguments, grpc: GrpcOptions | None = None) -> int:
    """Serve until told to end. Returns the exit code."""
    settings = arguments.settings
    configure(settings.log_level, settings.log_format)
    keep_freed_memory()
    shared = _own_sockets(arguments.grpc_sockets)
    listed = arguments.flags is not None
    try:
        frontend = SupervisedFrontend(settings, Path(arguments.engine), grpc, shared, listed=listed)
    except TlsError as error:  # the files have changed since the supervisor started; it tries again
        logger.error("%s", error)
        return 1
    spare_from_collection()
    return serve_http(frontend, settings, _own_sockets(arguments.sockets), END_AT_ONCE)


def _own_sockets(files: Sequence[int]) -> list[socket.socket]:
    """Sockets at the addresses of those that the supervisor holds."""
    sockets = []
    for file in files:
        with socket.socket(fileno=file) as held:
            sockets.append(share_port(held))
    return sockets


if __name__ == "__main__":
    sys.exit(serve(received()))
