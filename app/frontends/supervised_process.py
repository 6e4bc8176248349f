"""A process that is started again when it ends, until it is told to end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import suppress

from app.frontends.process_arguments import COULD_NOT_START, END_AT_ONCE, END_WITHOUT_GRACE
from app.frontends.process_starts import ProcessStart

logger = logging.getLogger(__name__)

#: Chosen: the pause before a restart doubles from the first to the longest.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0

#: Chosen: after a process that ran longer than this the pause is the first one again.
_LIVED_S = 30.0


def pause_s(failures: int) -> float:
    """How long to wait before the restart after this many failures in a row."""
    return min(_FIRST_PAUSE_S * 2.0 ** (failures - 1), _LONGEST_PAUSE_S)


class SupervisedProcess:
    """Runs a child process, and again when it ends by itself.

    Args:
        name: for the log.
    """

    def __init__(self, name: str, start: ProcessStart) -> None:
        self.name = name
        self._start = start
        self._ending: signal.Signals | None = None
        self._told = asyncio.Event()  # to end
        self._number = 0  # of the process that runs, else 0
        self._failures = 0

    async def keep_running(self) -> int:
        """Run it until it is told to end, or cannot start even once. Returns the last exit code."""
        try:
            return await self._keep_running()
        finally:
            await self._start.close()

    async def _keep_running(self) -> int:
        loop = asyncio.get_running_loop()
        restarts = 0
        while True:
            started_s = loop.time()
            code = await self._start.run(self._started)
            number, self._number = self._number, 0

            # 1. Told to end. A signal that arrives before Python handles it ends the process, too.
            if self._told.is_set():
                return 0 if code in {-signal.SIGTERM, -END_AT_ONCE, -END_WITHOUT_GRACE} else code

            # 2. It cannot start: it would fail again.
            if code == COULD_NOT_START and not restarts:
                return code

            # 3. It ended by itself: start it again after a pause.
            restarts += 1
            self._failures = 1 if loop.time() - started_s > _LIVED_S else self._failures + 1
            wait_s = pause_s(self._failures)
            logger.error("%s (process %d) %s; restart %d in %g s", self.name, number, _how(code), restarts, wait_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._told.wait()
                    return 0

    def _started(self, number: int) -> None:
        """A signal that came before is for this process."""
        self._number = number
        if self._ending is not None:
            self._send(self._ending)

    def end(self, number: signal.Signals) -> None:
        """Send this signal, and do not start the process again."""
        self._told.set()
        self._ending = number
        self._send(number)

    def _send(self, number: signal.Signals) -> None:
        if self._number:
            with suppress(ProcessLookupError):
                os.kill(self._number, number)


def _how(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
