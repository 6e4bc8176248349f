"""A frontend process: `python -m app.frontends.frontend.frontend_process`, started by the supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

from app.frontends.frontend.frontend_server import FrontendServer
from app.frontends.process_arguments import END_AT_ONCE, END_WITHOUT_GRACE, ProcessArguments, received, when_parent_ends
from app.instrumentation.logs import configure
from app.server.http_server import serve_http
from app.server.memory import keep_freed_memory, spare_from_collection
from app.transports.ports import share_port


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


def main(text: str) -> int:
    """Serve until told to end. Returns the exit code."""
    arguments = ProcessArguments.parse(text)
    settings = arguments.settings
    configure(settings.log_level)
    keep_freed_memory()
    frontend = SupervisedFrontend(settings, Path(arguments.engine))
    spare_from_collection()
    return serve_http(frontend, settings, [_own_socket(file) for file in arguments.sockets], END_AT_ONCE)


def _own_socket(file: int) -> socket.socket:
    """A socket at the address of the one that the supervisor holds."""
    with socket.socket(fileno=file) as held:
        return share_port(held)


if __name__ == "__main__":
    sys.exit(main(received()))
