"""Waiting for a state. The time limit is a guard against hangs: only a condition that never holds reaches it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

#: Seconds. Far longer than any step takes on a busy machine (TensorFlow starts and compiles in a few minutes where it
#: gets a fifteenth of a core), shorter than pytest's `timeout`.
HANG_S = 600.0


async def until(condition: Callable[[], bool]) -> None:
    """Lets the event loop run until the condition holds."""
    async with asyncio.timeout(HANG_S):
        while not condition():  # noqa: ASYNC110 - the other end is a socket or a thread, which sets no event
            await asyncio.sleep(0)


def wait_until(condition: Callable[[], bool], what: str = "") -> None:
    """Blocks this thread until the condition holds; `what` says what is missing where it never does.

    It looks less often the longer that takes: a look can be a request, for which a server that starts is kept waiting.
    """
    begun_s = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - begun_s
        assert waited_s < HANG_S, what or "the condition never held"
        time.sleep(min(max(0.01, waited_s / 20), 0.1))
