"""The thread that makes the calls of one device slot. Quick calls are made on the event loop instead (batcher.py)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds that the event loop waits for a thread to begin. Chosen: mostly it begins within 0.04 ms, but if other
#: processes have the cores it may not.
_BEGIN_S = 0.001


class DeviceThread:
    """A thread that does one piece of work at a time. Made on the event loop that it reports to.

    Args:
        stuck_after_s: `failure` reports a piece of work that takes longer.
        begin_s: the most seconds that `start` waits until the work has begun.
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
        *,
        begin_s: float = _BEGIN_S,
    ) -> None:
        self.name = name
        self.replica = replica
        self.hardware = hardware
        self._stuck_after_s = stuck_after_s
        self._begin_s = begin_s
        self._clock = clock
        self._busy_since_s: float | None = None
        self._loop = asyncio.get_running_loop()
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=f"device-{name}", daemon=True)
        self._thread.start()

    def start(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Calls `work` on the thread, then `done` with its result on the event loop. `work` must not raise.

        The caller releases the GIL until the work has begun. Otherwise the thread would wait for it while the event
        loop reads and answers requests, up to Python's switch interval of 5 ms (measured by `bench.heavy_models`:
        1.4 ms on average, in which a core computes nothing).
        """
        begun = Lock()
        begun.acquire()

        def step() -> None:
            begun.release()
            result = work()
            self._busy_since_s = None
            with suppress(RuntimeError):  # the loop is closed: the server no longer waits for this batch
                self._loop.call_soon_threadsafe(done, result)

        self._busy_since_s = self._clock()
        self._work.put(step)
        begun.acquire(timeout=self._begin_s)

    def failure(self, now: float) -> str:
        """The reason why the device needs a restart of the process; empty if it needs none."""
        if not self._thread.is_alive():
            return f"The thread of device {self.name} is dead"
        busy_since_s = self._busy_since_s
        if busy_since_s is not None and now - busy_since_s > self._stuck_after_s:
            return f"Device {self.name} works on one batch for {now - busy_since_s:.0f} s"
        return ""

    def close(self) -> None:
        """Ends the thread after its present work."""
        self._work.put(None)

    def _run(self) -> None:
        while (step := self._work.get()) is not None:
            step()
            del step  # frees the batch while the thread waits for the next one
