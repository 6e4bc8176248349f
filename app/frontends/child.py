"""A process that is kept running until it is told to end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress

from app.frontends.process_arguments import COULD_NOT_START, Arguments

logger = logging.getLogger(__name__)

#: The pause before a restart doubles from the first to the second, and begins anew for a process that lived so long.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0
_LIVED_S = 30.0


def pause_s(failures: int) -> float:
    """Before the restart that follows so many failures in a row."""
    return min(_FIRST_PAUSE_S * 2.0 ** (failures - 1), _LONGEST_PAUSE_S)


class Child:
    """Runs a Python module, again and again where it ends by itself.

    Args:
        arguments: whose sockets it inherits.
    """

    def __init__(self, name: str, module: str, arguments: Arguments) -> None:
        self.name = name
        self._command = (sys.executable, "-m", module, arguments.dump())
        self._files = arguments.sockets
        self._ending = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._failures = 0

    async def keep(self) -> int:
        """Returns the last exit code: when told to end, or when it could not even start."""
        loop = asyncio.get_running_loop()
        restarts = 0
        while True:
            started_s = loop.time()
            self._process = process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, pass_fds=self._files, process_group=0
            )
            code = await process.wait()
            if self._ending.is_set():
                return 0 if code == -signal.SIGTERM else code  # it was told before it had begun
            if code == COULD_NOT_START and not restarts:
                return code
            restarts += 1
            self._failures = 1 if loop.time() - started_s > _LIVED_S else self._failures + 1
            wait_s = pause_s(self._failures)
            logger.error("%s (process %d) %s; restart %d in %g s", self.name, process.pid, _how(code), restarts, wait_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._ending.wait()
                    return 0

    def end(self, how: signal.Signals) -> None:
        """By this signal, and without a restart."""
        self._ending.set()
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, how)  # send_signal would reap who has just ended, and lose the exit code


def _how(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
