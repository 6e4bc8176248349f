"""The thread that makes the calls of one device slot. Quick calls are made on the event loop instead (batcher.py)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


class DeviceThread:
    """Does one piece of work at a time. Made on the event loop that it reports to.

    Args:
        stuck_after_s: `failure` reports a piece of work that takes longer.
        replica: the replica of each model that it calls.
        hardware: devices with the same number share the hardware that they compute on.
    """

    def __init__(
        self,
        name: str,
        stuck_after_s: float,
        clock: Callable[[], float] = time.monotonic,
        replica: int = 0,
        hardware: int = 0,
    ) -> None:
        self.name = name
        self.replica = replica
        self.hardware = hardware
        self._stuck_after_s = stuck_after_s
        self._clock = clock
        self._busy_since_s: float | None = None
        self._loop = asyncio.get_running_loop()
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=f"device-{name}", daemon=True)
        self._thread.start()

    def start(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Calls `work` on the thread, then `done` with its result on the event loop. `work` must not raise."""

        def step() -> None:
            result = work()
            self._busy_since_s = None
            with suppress(RuntimeError):  # the loop is closed: the server no longer waits for this batch
                self._loop.call_soon_threadsafe(done, result)

        self._busy_since_s = self._clock()
        self._work.put(step)

    def failure(self, now: float) -> str:
        """Why the device needs a restart of the process; empty if it needs none."""
        if not self._thread.is_alive():
            return f"The thread of device {self.name} is dead"
        busy_since_s = self._busy_since_s
        if busy_since_s is not None and now - busy_since_s > self._stuck_after_s:
            return f"Device {self.name} works on one batch for {now - busy_since_s:.0f} s"
        return ""

    def close(self) -> None:
        """Ends the thread after the work that it has."""
        self._work.put(None)

    def _run(self) -> None:
        while (step := self._work.get()) is not None:
            step()
            del step  # frees the batch while the thread waits for the next one
