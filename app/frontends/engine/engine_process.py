"""The engine process, a fork of `python -m app.frontends.engine.engine_process`, which the supervisor starts."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from contextlib import suppress

import uvloop

from app.frontends.engine.engine_forks import fork_engines
from app.frontends.engine.engine_listener import EngineListener
from app.frontends.process_arguments import COULD_NOT_START, END_AT_ONCE, ProcessArguments, when_parent_ends
from app.instrumentation.logs import configure
from app.repository.model_list_watch import WatchedModels
from app.runtimes.tensorflow.start import preload
from app.server.memory import keep_freed_memory
from app.server.server import Server
from app.transports.grpc.options import GrpcOptions

logger = logging.getLogger("app.frontends.engine.engine_process")  # this is __main__

#: Chosen: how often the server is checked for a failed start.
_CHECK_S = 0.1

#: Chosen: how long drained frontends may take to disconnect.
_FRONTENDS_LEAVE_S = 10.0


async def run_engine(server: Server, listener: socket.socket) -> int:
    """Serve frontends and gRPC until told to end, then stop in the order of http_server.py. Returns the exit code."""
    frontends = EngineListener(server)
    draining = server.engine.draining

    def begin_drain() -> None:
        if not draining.is_set():
            logger.info("Draining")
            server.engine.begin_drain()
            frontends.publish()

    def end_at_once() -> None:
        drained = server.engine.drained
        if not drained:
            rows = server.engine.queue_rows()
            logger.error("Told to end at once: what is not answered yet is dropped; %d rows wait", rows)
        _exit_now(0 if drained else 1)

    # 1. Signals and the end of the parent end it.
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, begin_drain)
    loop.add_signal_handler(END_AT_ONCE, end_at_once)
    when_parent_ends(begin_drain)

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
    """Serve until told to end. Returns the exit code."""
    configure(arguments.settings.log_level)
    server = Server(arguments.settings, models, grpc)
    (file,) = arguments.sockets
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(run_engine(server, socket.socket(fileno=file)))
    if not server.stopped:
        _exit_now(code)
    return code


def prepare() -> None:
    """What all engines share."""
    keep_freed_memory()
    preload()


def _exit_now(code: int) -> None:
    """Exit without waiting for a model that is being loaded or a batch that is running."""
    logging.shutdown()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(fork_engines(lambda text: serve(ProcessArguments.parse(text)), prepare))
