"""The engine process, a fork of `python -m app.frontends.engine.engine_process`, which the supervisor starts."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from contextlib import suppress
from functools import partial

import uvloop

from app.frontends.engine.engine_forks import fork_engines
from app.frontends.engine.engine_listener import EngineListener
from app.frontends.process_arguments import (
    COULD_NOT_START,
    END_AT_ONCE,
    END_WITHOUT_GRACE,
    ProcessArguments,
    when_parent_ends,
)
from app.log_lines import configure
from app.repository.model_list_watch import WatchedModels
from app.runtimes.tensorflow.start import preload
from app.server.memory import keep_freed_memory
from app.server.server import Server
from app.transports.grpc.options import GrpcOptions

logger = logging.getLogger("app.frontends.engine.engine_process")  # this is __main__

#: Chosen: how often the server is checked for a failed start.
_CHECK_S = 0.1

#: Chosen: how much later than this process frontends may begin to drain. Before that, their requests are accepted. The
#: last clients of their gRPC have 3 s (http_server.py).
_FRONTENDS_DRAIN_S = 7.0

#: Chosen: how long drained frontends may take to disconnect. The steps of http_server.py take 11.5 s at most.
_FRONTENDS_LEAVE_S = 12.0


class _Ending:
    """How the engine ends, once it is told to."""

    def __init__(self, server: Server, frontends: EngineListener) -> None:
        self._server = server
        self._frontends = frontends
        self._task: asyncio.Task[None] | None = None

    def begin(self, *, grace: bool = True) -> None:
        """After the grace, if there is one. A second signal changes nothing."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(self._server.grace_s if grace else 0.0), name="end")

    async def _run(self, grace_s: float) -> None:
        """Frontends have a grace of their own: the engine rejects nothing before they do."""
        if grace_s:
            self._server.begin_grace()
            self._frontends.publish()
            await asyncio.sleep(grace_s)
            await self._server.end_grace()
            await self._frontends.drained(_FRONTENDS_DRAIN_S)
        logger.info("Draining")
        self._server.engine.begin_drain()
        self._frontends.publish()

    def at_once(self) -> None:
        self._server.engine.begin_drain()  # within the grace nothing may be left, either
        drained = self._server.engine.drained
        if not drained:
            rows = self._server.engine.queue_rows()
            logger.error("Told to end at once: what is not answered yet is dropped; %d rows wait", rows)
        _exit_now(0 if drained else 1)


async def run_engine(server: Server, listener: socket.socket) -> int:
    """Serve frontends until told to end, then stop in the order of http_server.py. Returns the exit code."""
    frontends = EngineListener(server)
    ending = _Ending(server, frontends)
    draining = server.engine.draining

    # 1. Signals and the end of the parent end it.
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ending.begin)
    for number in (signal.SIGINT, END_WITHOUT_GRACE):
        loop.add_signal_handler(number, partial(ending.begin, grace=False))
    loop.add_signal_handler(END_AT_ONCE, ending.at_once)
    when_parent_ends(ending.begin)

    # 2. Serve.
    await server.start()
    frontends.open(listener)
    while not (server.failure or draining.is_set()):
        with suppress(TimeoutError):
            async with asyncio.timeout(_CHECK_S):
                await draining.wait()

    # 3. It could not start, or it drains.
    if server.failure:
        await frontends.close(0.0)
        await server.stop()
        return COULD_NOT_START
    code = 0 if await server.drain() else 1
    await frontends.close(_FRONTENDS_LEAVE_S)
    await server.stop()
    return code


def serve(arguments: ProcessArguments, models: WatchedModels | None = None, grpc: GrpcOptions | None = None) -> int:
    """Serve until told to end. Returns the exit code. `grpc`: how frontends serve it, for what metrics tell of TLS."""
    configure(arguments.settings.log_level, arguments.settings.log_format)
    server = Server(arguments.settings, models, grpc)
    server.first_lines.listens(arguments.settings.rest_port if arguments.settings.rest else 0)
    (file,) = arguments.sockets
    with socket.socket(fileno=file) as listener, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(run_engine(server, listener))
    if not server.stopped:
        _exit_now(code)
    return code


def prepare() -> None:
    """Sets up the parent of forked engines with all that they share: malloc's options, and imports."""
    keep_freed_memory()
    preload()


def _exit_now(code: int) -> None:
    """Exit without waiting for a model that is being loaded or a batch that is running."""
    logging.shutdown()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(fork_engines(serve, prepare))
