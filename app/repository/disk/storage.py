"""The access to storage, by processes that can be given up, because a read of a stale mount never ends.

1. The event loop never touches the storage.
2. A process without a sign of life for `timeout_s` is killed and given up, even if the kernel does not let it end; the
   next call gets another one.
3. Processes start when they are first needed, and serve many calls; there are at most `_MOST` calls at a time.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

from app.repository.disk.storage_process import AT, ERROR, LENGTH, message

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

#: The seconds without a sign of life after which storage counts as hung. Chosen: storage that is only slow sends one
#: sooner.
_SILENT_S = 20.0

#: The most calls at the same time: a call that waits for its time limit does not stop the others. Chosen.
_MOST = 4

_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from app.repository.disk.storage_process import main; main()"


class StorageSilent(OSError):
    """The storage has not answered within the time limit. `where` is the path."""

    def __init__(self, where: str, timeout_s: float) -> None:
        super().__init__(f"the storage does not answer: nothing came from {where} for {timeout_s:g} s")
        self.where = where


class StorageProcesses:
    """Calls of functions that touch the storage, in processes, given up without a sign of life for `timeout_s`."""

    def __init__(self, timeout_s: float = _SILENT_S) -> None:
        self._timeout_s = timeout_s
        self._idle: list[_StorageProcess] = []
        self._busy: set[_StorageProcess] = set()
        self._room = asyncio.Semaphore(_MOST)
        self._closed = False

    async def call(self, function: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
        """The result of a module-level function, whose arguments can be pickled.

        Raises what the function raises, and StorageSilent.
        """
        async with self._room:
            self._check_open()
            process = self._idle.pop() if self._idle else await _StorageProcess.start()
            self._busy.add(process)
            try:
                self._check_open()  # starting a process takes a while
                kind, content = await process.ask(function, args, self._timeout_s)
            except BaseException:
                process.end()
                raise
            finally:
                self._busy.discard(process)
            if self._closed:
                process.end()
            else:
                self._idle.append(process)
        if kind == ERROR:
            raise content
        result: Result = content
        return result

    def _check_open(self) -> None:
        if self._closed:
            raise OSError("the server stops")

    def close(self) -> None:
        """Give up the calls in progress."""
        self._closed = True
        for process in (*self._idle, *self._busy):
            process.end()
        self._idle.clear()

    def __repr__(self) -> str:
        return f"<StorageProcesses {len(self._idle)} idle, {len(self._busy)} busy>"


class _StorageProcess:
    """One process and the connection to it."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls) -> _StorageProcess:
        ours, theirs = socket.socketpair()
        spawning = asyncio.get_running_loop().run_in_executor(None, _spawn, theirs)
        try:
            process = await asyncio.shield(spawning)
            reader, writer = await asyncio.open_connection(sock=ours)
        except BaseException:
            ours.close()
            spawning.add_done_callback(lambda spawned: _end(spawned.result()))
            raise
        started = cls(process, reader, writer)
        try:
            await started._read()  # the sign that it has started: on a busy machine this takes longer than `timeout_s`
        except BaseException:
            started.end()
            raise
        return started

    async def ask(self, function: Callable[..., Any], args: tuple[Any, ...], timeout_s: float) -> tuple[int, Any]:
        """The kind and content of the answer. Raises StorageSilent; OSError: the process ended."""
        self._writer.write(message((function, args)))
        where = "it"
        while True:
            try:
                async with asyncio.timeout(timeout_s):
                    kind, content = await self._read()
            except TimeoutError:
                raise StorageSilent(where, timeout_s) from None
            if kind != AT:
                return kind, content
            where = content

    async def _read(self) -> tuple[int, Any]:
        try:
            (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            body = await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise OSError("the process that reads the storage ended") from None
        kind, content = pickle.loads(body)  # noqa: S301 - from Ferry
        return kind, content

    def end(self) -> None:
        """End the process. Never waits: a process in a read that hangs ends when the kernel lets it."""
        self._writer.close()
        _end(self._process)


def _spawn(connection: socket.socket) -> subprocess.Popen[bytes]:
    """A process in its own session, which no key typed in a terminal reaches. It ends with its connection."""
    root = Path(__file__).parents[3]
    with connection:
        return subprocess.Popen(  # noqa: S603 - this interpreter, and nothing that users give
            [sys.executable, "-I", "-S", "-c", _PROGRAM, str(root)],
            stdin=connection.fileno(),
            stdout=connection.fileno(),
            start_new_session=True,
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    threading.Thread(target=process.wait, name="storage process ends", daemon=True).start()
