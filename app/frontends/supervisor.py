"""The process that starts the frontends and the engine, starts them again when they end, and tells them to end.

It holds the Unix socket where frontends connect to the engine, so their connections wait there while the engine
restarts, and the ports of HTTP and gRPC, which frontends share. It imports neither TensorFlow nor gRPC: little can fail
in it.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.config.settings import Settings
from app.frontends.process_arguments import END_AT_ONCE, END_WITHOUT_GRACE, ProcessArguments
from app.frontends.process_starts import Fork, NewInterpreter
from app.frontends.supervised_process import SupervisedProcess
from app.log_lines import configure
from app.transports import CLOSING_S
from app.transports.descriptors import raise_limit
from app.transports.ports import GRPC, HTTP, PortKind, PortNotFree, bind_ports
from app.transports.tls.served_tls import ServedTls
from app.transports.tls.texts import TlsError

logger = logging.getLogger(__name__)

ENGINE = "app.frontends.engine.engine_process"
FRONTEND = "app.frontends.frontend.frontend_process"

#: The seconds after the grace and the drain timeout at which a process that still runs is killed: the most that its end
#: takes (CLOSING_S), and one more. Chosen.
END_WITHIN_S = CLOSING_S + 1.0


def supervise(
    settings: Settings, engine: str = ENGINE, frontend: str = "", flags: Mapping[str, Any] | None = None
) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code: 0 if every accepted request was answered.

    Args:
        engine, frontend: names of the modules that run the engine and a frontend; frontend '' means FRONTEND.
        flags: the command-line flags of ferry-model-server, for both modules; None if `ferry serve` calls.
    """
    configure(settings.log_level, settings.log_format)
    raise_limit()  # children inherit it
    with ExitStack() as stack:
        # 1. The ports, bound here; frontends listen on them. A port that is taken, or TLS files that cannot be used,
        #    end the start with exit code 1.
        try:
            ServedTls.of(settings)  # raises TlsError if the files cannot be used
            ports = _held(stack, settings.host, settings.http_ports if settings.rest else {}, HTTP)
            grpc_port = {settings.grpc_port: ", TLS" if settings.tls_certificate else ""}
            grpc_sockets = _held(stack, settings.host, grpc_port, GRPC)
        except (PortNotFree, TlsError) as error:
            logger.error("%s", error)
            return 1

        # 2. The Unix socket between frontends and engine, in a folder of mode 0700.
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ferry-"))
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        path = str(Path(folder) / "engine")
        listener.bind(path)
        listener.listen(128)  # chosen: connections of frontends that may wait while the engine starts

        # 3. The processes.
        to_engine = ProcessArguments(settings, [listener.fileno()], flags=flags)
        to_frontend = ProcessArguments(settings, ports, path, flags, grpc_sockets)
        # Frontends cannot share a Unix socket: the first alone serves grpc_unix_socket.
        to_others = replace(to_frontend, settings=settings.model_copy(update={"grpc_unix_socket": ""}))
        processes = [
            SupervisedProcess("The engine", Fork(engine, to_engine)),
            *[
                SupervisedProcess(
                    f"Frontend {n}", NewInterpreter(frontend or FRONTEND, to_others if n > 1 else to_frontend)
                )
                for n in range(1, settings.frontends + 1)
            ],
        ]
        return asyncio.run(_keep_all_running(processes, settings))


def _held(stack: ExitStack, host: str, ports: Mapping[int, str], kind: PortKind) -> list[int]:
    """File descriptors of sockets bound to these ports; see `bind_ports`. Raises PortNotFree."""
    return [stack.enter_context(each).fileno() for each in bind_ports(host, ports, kind)]


async def _keep_all_running(processes: Sequence[SupervisedProcess], settings: Settings) -> int:
    """Run the processes until a signal, or until one cannot start; then end all. Returns 1 if an exit code is not 0.

    http_server.py lists how a frontend ends.
    """
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()

    def end(how: signal.Signals) -> None:
        how = END_AT_ONCE if ending.is_set() else how  # a second signal ends at once
        ending.set()
        for process in processes:
            process.end(how)

    loop.add_signal_handler(signal.SIGTERM, end, signal.SIGTERM)
    loop.add_signal_handler(signal.SIGINT, end, END_WITHOUT_GRACE)

    # 1. Wait for a signal, or for a process that cannot start: the others serve nothing without it, so they are ended.
    keeping = [asyncio.create_task(process.keep_running()) for process in processes]
    told = asyncio.create_task(ending.wait())
    await asyncio.wait([*keeping, told], return_when=asyncio.FIRST_COMPLETED)
    if not ending.is_set():  # a process could not start: end the others without grace
        end(END_WITHOUT_GRACE)
    await told

    # 2. Every process drains and ends; a process that still runs after ends_s is killed.
    ends_s = settings.drain_grace_s + settings.drain_timeout_s + END_WITHIN_S
    _, left = await asyncio.wait(keeping, timeout=ends_s)
    for process in processes if left else ():
        process.end(signal.SIGKILL)

    # 3. The exit code: 1 if any process failed.
    codes = await asyncio.gather(*keeping)
    return 1 if any(codes) else 0
