"""The engine: `python -m app.frontends.engine.process ARGUMENTS`, started by the supervisor."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from contextlib import suppress

import uvloop

from app.frontends.engine.listener import Door
from app.frontends.process_arguments import COULD_NOT_START, Arguments, when_parent_ends
from app.instrumentation.logs import configure
from app.repository.model_list_watch import WatchedModels
from app.server.memory import keep_freed_memory
from app.server.server import Server
from app.transports.grpc.server import GrpcOptions

logger = logging.getLogger("app.frontends.engine.process")  # this is __main__

#: How often a server is asked whether it could start.
_LOOK_S = 0.1

#: Frontends that drained linger a little and then go; they get this long.
_FRONTENDS_LEAVE_S = 10.0


async def run_engine(server: Server, listener: socket.socket) -> int:
    """Serves frontends and gRPC until told to end; returns the exit code."""
    door = Door(server)
    draining = server.engine.draining
    code = 1

    def end() -> None:
        """The first signal begins the drain, a second one ends at once."""
        if draining.is_set():
            _leave(code)
        logger.info("Draining")
        server.engine.begin_drain()
        door.publish()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    when_parent_ends(lambda: None if draining.is_set() else end())
    await server.start()
    door.open(listener)
    while not (server.failure or draining.is_set()):
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await draining.wait()
    if server.failure:
        await door.close(0.0)
        await server.stop()
        return COULD_NOT_START
    code = 0 if await server.drain() else 1
    await door.close(_FRONTENDS_LEAVE_S)
    await server.stop()
    return code


def main(arguments: Arguments, models: WatchedModels | None = None, grpc: GrpcOptions | None = None) -> int:
    """`run_engine` in a process of its own."""
    configure(arguments.settings.log_level)
    keep_freed_memory()
    server = Server(arguments.settings, models, grpc)
    (file,) = arguments.sockets
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(run_engine(server, socket.socket(fileno=file)))
    if not server.stopped:
        _leave(code)
    return code


def _leave(code: int) -> None:
    """Exits without waiting for a model that still loads or a batch that still runs."""
    logging.shutdown()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main(Arguments.parse(sys.argv[1])))
