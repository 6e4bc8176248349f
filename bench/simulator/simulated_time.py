"""An event loop whose time passes only where somebody waits for it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from math import ulp
from typing import Any, TypeVar

T = TypeVar("T")

#: Real seconds that what a thread does may take until time jumps all the same: a test may want it to hang.
_THREAD_S = 1.0


class _JumpingSelector(selectors.DefaultSelector):
    """Does not wait: advances the clock by the time that it would have waited.

    What threads do takes none of this time, but no timer is due before it is done.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.threads = 0  # that were asked for something and have not answered

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if not events and timeout and self.threads:
            events = super().select(_THREAD_S)
        if events:
            return events
        if timeout is None and (events := super().select(10)):  # a thread reported
            return events
        if timeout is None:
            raise AssertionError("Everything waits and nothing is due: a wake-up was lost")
        self.now += timeout
        return events


class FakeTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer as soon as nothing else is left to do."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    @property
    def _clock_resolution(self) -> float:
        """No timer fires before its time: what is set again for the same moment then would never come to it."""
        return ulp(self._jumping.now)

    @_clock_resolution.setter
    def _clock_resolution(self, seconds: float) -> None:
        """That of the real clock counts for nothing."""

    def time(self) -> float:
        return self._jumping.now

    def run_in_executor(self, executor: Any, function: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]  # typeshed has variadic generics here
        future = super().run_in_executor(executor, function, *args)
        self._jumping.threads += 1
        future.add_done_callback(self._answered)
        return future

    def _answered(self, _: object) -> None:
        self._jumping.threads -= 1

    def work(self, seconds: float) -> None:
        """What runs now takes this many seconds."""
        self._jumping.now += seconds


def run_in_fake_time(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=FakeTimeLoop) as runner:
        return runner.run(main)


def work(seconds: float) -> None:
    """The callback that runs now takes this long by the clock of its loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, FakeTimeLoop)
    loop.work(seconds)


def fake_time() -> float:
    """The clock of the loop that runs now."""
    return asyncio.get_running_loop().time()
