"""Reads requests in bursts while they come only to be rejected.

Each request that comes wakes the event loop, and on a core that a model computes on, a thread that wakes takes the
core from it: thousands of times a second under overload, each time with the model's data pushed out of the caches. A
thread of Linux's policy SCHED_BATCH never does that. It waits until the computing thread's slice is over, some
milliseconds at most, and then finds many requests at once; on a free core it runs at once as ever.
Source: sched(7).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from math import inf

#: Nobody was rejected for so long: the overload is over.
_CALM_S = 0.1


class InterruptModeration:
    """Of the event loop's thread; another policy than the usual one, or a kernel that knows none, is left alone.

    A thread that is started meanwhile is as patient for good, which harms no thread that computes.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._refused_s = -inf
        self._gathering = False

    def rejected(self, now: float) -> None:
        """One more came in vain."""
        self._refused_s = now
        if not self._gathering:
            self._gathering = True
            if _change_policy("SCHED_OTHER", "SCHED_BATCH"):
                self._look_later()

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_later(_CALM_S, self._look)

    def _look(self) -> None:
        if self._clock() - self._refused_s < _CALM_S:
            self._look_later()
        else:
            self._gathering = not _change_policy("SCHED_BATCH", "SCHED_OTHER")


def _change_policy(usual: str, wanted: str) -> bool:
    """Of this thread, if it is the usual one. False where that cannot be."""
    try:
        if os.sched_getscheduler(0) == getattr(os, usual):
            os.sched_setscheduler(0, getattr(os, wanted), os.sched_param(0))
            return True
    except (AttributeError, OSError):  # not Linux, or a sandbox forbids it
        pass
    return False
