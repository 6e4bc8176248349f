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
    """Blocks this thread until the condition holds; `what` says what is missing where it never does."""
    give_up = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < give_up, what or "the condition never held"
        time.sleep(0.01)
