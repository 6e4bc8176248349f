"""Interrupt moderation: under overload the event loop reads requests in bursts.

Each request that arrives wakes the event loop. If its core computes a model, the thread that wakes preempts the model:
thousands of times a second under overload, and each time the caches lose the model's data. A thread with Linux's policy
SCHED_BATCH does not preempt. It waits until the time slice of the computing thread is over, some milliseconds at most,
and then finds many requests; on an idle core it runs without delay.
Source: sched(7).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from math import inf

from app.core.events import RequestsRefused, Subscriptions

#: Refusals that say that there is more to compute than can be.
_OVERLOADED = frozenset({"late", "queue_full"})

#: The overload is over when no request was rejected for this long (chosen).
_CALM_S = 0.1


class InterruptModeration:
    """The scheduling policy of the event loop's thread, where events arrive: SCHED_BATCH while requests are rejected.

    A thread with a policy other than the default one, and a system without policies, are left as they are. A thread
    that is started meanwhile inherits SCHED_BATCH; that does no harm to a thread that computes.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rejected_s = -inf
        self._moderating = False

    @property
    def subscriptions(self) -> Subscriptions:
        return {RequestsRefused: self._refused}

    def _refused(self, event: RequestsRefused) -> None:
        if event.cause not in _OVERLOADED:
            return
        self._rejected_s = self._clock()
        if not self._moderating:
            self._moderating = True
            if _change_policy("SCHED_OTHER", "SCHED_BATCH"):
                asyncio.get_running_loop().call_later(_CALM_S, self._look)

    def _look(self) -> None:
        if self._clock() - self._rejected_s < _CALM_S:
            asyncio.get_running_loop().call_later(_CALM_S, self._look)
        else:
            self._moderating = not _change_policy("SCHED_BATCH", "SCHED_OTHER")


def _change_policy(usual: str, wanted: str) -> bool:
    """Changes this thread's policy from `usual` to `wanted`; False if it has another one or cannot be changed."""
    try:
        if os.sched_getscheduler(0) == getattr(os, usual):
            os.sched_setscheduler(0, getattr(os, wanted), os.sched_param(0))
            return True
    except (AttributeError, OSError):  # not Linux, or a sandbox forbids it
        pass
    return False
