"""How the supervisor starts a process: a new interpreter each time, or a fork of one that has made the imports.

The child finds modules where this process finds them (PYTHONPATH is this process's `sys.path`), never in the working
directory (`-P`): an `app/` there is the user's own.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from app.frontends.process_arguments import ProcessArguments

#: Called with the id of a process: signals to the child go there from now on.
Started = Callable[[int], None]


class ProcessStart(Protocol):
    """Runs a module with its arguments, as often as it is asked to. The child inherits the sockets in them."""

    async def run(self, started: Started) -> int:
        """Runs it until it ends. Returns its exit code, negative for a signal."""

    async def close(self) -> None:
        """Leaves no process behind. Nothing runs any more."""


@dataclass
class NewInterpreter:
    """Each process is a new interpreter. Its standard input stays open: the end of it is the end of this process."""

    module: str
    arguments: ProcessArguments

    async def run(self, started: Started) -> int:
        process = await _spawn(self.module, self.arguments, PIPE)
        started(process.pid)
        assert process.stdin is not None  # noqa: S101 - a pipe
        process.stdin.write(self.arguments.line())
        return await process.wait()

    async def close(self) -> None:
        """Nothing to do: no process is left after `run`."""


@dataclass
class Fork:
    """One parent process makes the imports and forks a child for each run: app/frontends/engine/engine_forks.py.

    If the parent is killed, its child ends with it, and the next run starts a new parent.
    """

    module: str
    arguments: ProcessArguments
    _parent: Process | None = None
    _channel: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def run(self, started: Started) -> int:
        # 1. The parent: it gets the signals until it has forked.
        if self._parent is None or self._parent.returncode is not None:
            await self.close()
            self._parent, self._channel = await self._start_parent()
        started(self._parent.pid)
        assert self._channel is not None  # noqa: S101 - there is a parent
        reader, writer = self._channel
        writer.write(self.arguments.line())

        # 2. The child: the parent sends its id, and its exit code when it has ended.
        with suppress(ConnectionError):  # a parent that was killed
            if number := await reader.readline():
                started(int(number))
                if code := await reader.readline():
                    return int(code)

        # 3. The parent ended, and so did its child.
        return await self._parent.wait()

    async def close(self) -> None:
        if self._channel is not None:
            self._channel[1].close()
        if self._parent is not None:
            with suppress(ProcessLookupError):
                self._parent.kill()
            await self._parent.wait()

    async def _start_parent(self) -> tuple[Process, tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        ours, theirs = socket.socketpair()
        with theirs:
            parent = await _spawn(self.module, self.arguments, theirs.fileno())
        return parent, await asyncio.open_connection(sock=ours)


async def _spawn(module: str, arguments: ProcessArguments, stdin: int) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", module),
        stdin=stdin,
        pass_fds=arguments.files,
        process_group=0,
        env={**os.environ, "PYTHONPATH": _module_path()},
    )


def _module_path() -> str:
    """`sys.path`, for PYTHONPATH; an empty entry is the working directory."""
    return os.pathsep.join(entry or os.getcwd() for entry in sys.path)
