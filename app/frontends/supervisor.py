"""The process that starts frontends and engine, starts them again when they die, and tells them to end.

It holds the socket that frontends reach the engine by, so what they begin while it is away waits for the next,
and HTTP's ports, which frontends share.
It imports neither TensorFlow nor numpy and has nothing to fail by itself.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from app.config.settings import Settings
from app.frontends.child import Child
from app.frontends.ports import bound
from app.frontends.process_arguments import Arguments
from app.instrumentation.logs import configure

logger = logging.getLogger(__name__)

ENGINE = "app.frontends.engine.process"
FRONTEND = "app.frontends.frontend.process"

#: What a drain takes beyond its timeout, before processes that are left are killed.
_END_WITHIN_S = 20.0


def supervise(settings: Settings, engine: str = ENGINE, flags: Mapping[str, Any] | None = None) -> int:
    """Serves until SIGTERM or SIGINT; returns the exit code: 0 when everything accepted was answered.

    Args:
        engine: the module that runs the engine.
        flags: what it needs beside the settings.
    """
    configure(settings.log_level)
    with ExitStack() as stack:
        try:
            ports = [stack.enter_context(each) for each in _hold(settings.host, settings.rest_port)]
        except OSError as error:
            logger.error("HTTP cannot listen on %s, port %d: %s", settings.host, settings.rest_port, error.strerror)
            return 1
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ferry-"))
        door = stack.enter_context(socket.socket(socket.AF_UNIX))
        path = str(Path(folder) / "engine")
        door.bind(path)
        door.listen(128)
        to_engine = Arguments(settings, [door.fileno()], flags=flags)
        to_frontend = Arguments(settings, [port.fileno() for port in ports], engine=path)
        children = [
            Child("The engine", engine, to_engine),
            *[Child(f"Frontend {n + 1}", FRONTEND, to_frontend) for n in range(settings.frontends)],
        ]
        return asyncio.run(_keep_all(children, settings))


async def _keep_all(children: Sequence[Child], settings: Settings) -> int:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()

    def end() -> None:
        told.set()
        for child in children:
            child.end(signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    keeping = [asyncio.create_task(child.keep()) for child in children]
    telling = asyncio.create_task(told.wait())
    await asyncio.wait([*keeping, telling], return_when=asyncio.FIRST_COMPLETED)
    if not told.is_set():  # one could not start, so the others are of no use
        end()
    await telling
    _, left = await asyncio.wait(keeping, timeout=settings.drain_timeout_s + _END_WITHIN_S)
    for child in children if left else ():
        child.end(signal.SIGKILL)
    codes = await asyncio.gather(*keeping)
    return 1 if any(codes) else 0


def _hold(host: str, port: int) -> Iterator[socket.socket]:
    """Bound, never listening: frontends do that. Raises OSError."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, _, _, _, address in dict.fromkeys(found):
        held = bound(family, address)
        logger.info("HTTP on %s, port %d", *held.getsockname()[:2])
        yield held
