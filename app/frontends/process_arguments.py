"""What supervised processes share: their arguments, and the end of their parent."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.config.settings import Settings

#: linux/prctl.h
_PR_SET_PDEATHSIG = 1

#: Exit code of a process that would fail again at once.
COULD_NOT_START = 3


#: The supervisor's signal to end at once: requests that are not answered yet are dropped. SIGTERM begins the end,
#: however often it comes: a service manager may send it to all processes, and the supervisor passes it on as well.
END_AT_ONCE = signal.SIGUSR1

#: The supervisor's signal for SIGINT: a drain without the grace. Not SIGINT itself, at which a Python that is still
#: starting writes a stack trace.
END_WITHOUT_GRACE = signal.SIGUSR2


@dataclass(frozen=True, slots=True)
class ProcessArguments:
    """The arguments of a frontend or engine process, as a JSON document.

    They come by standard input, one line: every user of the machine can read a command line, and settings hold secrets.

    Attributes:
        sockets: inherited file descriptors: HTTP ports that a frontend shares, or where the engine accepts frontends.
        engine: path of the Unix socket where frontends connect to the engine.
        flags: command-line flags of ferry-model-server.
        grpc_sockets: as `sockets`, for the gRPC port that a frontend shares.
    """

    settings: Settings
    sockets: Sequence[int]
    engine: str = ""
    flags: Mapping[str, Any] | None = None
    grpc_sockets: Sequence[int] = field(default_factory=list)

    @property
    def files(self) -> list[int]:
        """The descriptors of all sockets, which the process inherits."""
        return [*self.sockets, *self.grpc_sockets]

    def line(self) -> bytes:
        """One line, for the standard input of the process."""
        return orjson.dumps(self, default=lambda settings: settings.model_dump(mode="json")) + b"\n"

    @classmethod
    def parse(cls, line: bytes) -> ProcessArguments:
        document = orjson.loads(line)
        return cls(**{**document, "settings": Settings(**document["settings"])})


def received() -> ProcessArguments:
    """The arguments that the parent writes to standard input; this process ends if the parent ended before."""
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit(0)
    return ProcessArguments.parse(line)


def end_with(parent: int) -> None:
    """Has the kernel kill this process when its parent ends, also while no Python thread runs here."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def when_parent_ends(act: Callable[[], None]) -> None:
    """Call `act` when the parent ends: it holds the other end of standard input open, and writes nothing more."""
    loop, file = asyncio.get_running_loop(), sys.stdin.fileno()

    def on_readable() -> None:
        if not os.read(file, 4096):
            loop.remove_reader(file)
            act()

    loop.add_reader(file, on_readable)
