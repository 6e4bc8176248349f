"""The lag of the event loop: how late it runs a due callback, and so reads, begins and answers requests."""

from __future__ import annotations

import asyncio

from app.instrumentation.histogram import SECONDS, Histogram

#: Chosen: seldom enough to cost nothing, and often enough that a minute of lag is seen in every scrape.
_EVERY_S = 0.25


class LoopLag:
    """The lag, measured a few times a second. Started and stopped on the event loop.

    seconds: how much later than planned a callback came.
    """

    def __init__(self) -> None:
        self.seconds = Histogram(SECONDS)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._look_later(asyncio.get_running_loop())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        due_s = loop.time() + _EVERY_S
        self._timer = loop.call_at(due_s, self._look, loop, due_s)

    def _look(self, loop: asyncio.AbstractEventLoop, due_s: float) -> None:
        self.seconds.observe(max(0.0, loop.time() - due_s))
        self._look_later(loop)
