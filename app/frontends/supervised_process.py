"""A process that is started again when it ends, until it is told to end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress

from app.frontends.process_arguments import COULD_NOT_START, ProcessArguments

logger = logging.getLogger(__name__)

#: Chosen: the pause before a restart doubles from the first to the longest.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0

#: Chosen: the spare of a process starts so much later, when that has loaded its models.
_SPARE_AFTER_S = 30.0

#: Chosen: after a process that ran longer than this the pause is the first one again.
_LIVED_S = 30.0


def pause_s(failures: int) -> float:
    """How long to wait before the restart after so many failures in a row."""
    return min(_FIRST_PAUSE_S * 2.0 ** (failures - 1), _LONGEST_PAUSE_S)


class SupervisedProcess:
    """Runs a Python module in a child process, and again when it ends by itself.

    The child finds modules where this process finds them (PYTHONPATH is this process's `sys.path`), never in the
    working directory (`-P`): an `app/` there is the user's own.

    Args:
        name: for the log.
        arguments: written to its standard input; the child inherits the sockets in it.
        spare: keep a second process that waits for its arguments, and takes the place of one that ends.
    """

    def __init__(self, name: str, module: str, arguments: ProcessArguments, *, spare: bool = False) -> None:
        self._wants_spare = spare
        self._spare: asyncio.subprocess.Process | None = None
        self.name = name
        self._command = (sys.executable, "-P", "-m", module)
        self._arguments = f"{arguments.dump()}\n".encode()
        self._files = arguments.sockets
        self._ending = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._failures = 0

    async def keep_running(self) -> int:
        """Run it until it is told to end, or cannot start even once. Returns the last exit code."""
        keeping_spare = asyncio.create_task(self._keep_spare()) if self._wants_spare else None
        try:
            return await self._keep_running()
        finally:
            if keeping_spare is not None:
                keeping_spare.cancel()
                await asyncio.wait([keeping_spare])
            if self._spare is not None:
                await _kill(self._spare)

    async def _keep_running(self) -> int:
        loop = asyncio.get_running_loop()
        restarts = 0
        while True:
            started_s = loop.time()
            self._process = process = self._take_spare() or await self._spawn()
            assert process.stdin is not None  # noqa: S101 - a pipe, which stays open: its end is the end of this process
            process.stdin.write(self._arguments)
            code = await process.wait()

            # 1. Told to end. A signal that arrives before Python handles it ends the process, too.
            if self._ending.is_set():
                return 0 if code == -signal.SIGTERM else code

            # 2. It cannot start: it would fail again.
            if code == COULD_NOT_START and not restarts:
                return code

            # 3. It ended by itself: start it again after a pause.
            restarts += 1
            self._failures = 1 if loop.time() - started_s > _LIVED_S else self._failures + 1
            wait_s = pause_s(self._failures)
            logger.error("%s (process %d) %s; restart %d in %g s", self.name, process.pid, _how(code), restarts, wait_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._ending.wait()
                    return 0

    async def _spawn(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            pass_fds=self._files,
            process_group=0,
            env={**os.environ, "PYTHONPATH": _module_path()},
        )

    async def _keep_spare(self) -> None:
        """A spare that was taken, or has ended, is replaced in time."""
        while True:
            await asyncio.sleep(_SPARE_AFTER_S)
            if self._spare is None or self._spare.returncode is not None:
                self._spare = await self._spawn()

    def _take_spare(self) -> asyncio.subprocess.Process | None:
        spare, self._spare = self._spare, None
        return spare if spare is not None and spare.returncode is None else None

    def end(self, number: signal.Signals) -> None:
        """Send this signal, and do not start the process again."""
        self._ending.set()
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)  # send_signal would reap an ended process and lose its exit code


async def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def _module_path() -> str:
    """`sys.path`, for PYTHONPATH; an empty entry is the working directory."""
    return os.pathsep.join(entry or os.getcwd() for entry in sys.path)


def _how(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
