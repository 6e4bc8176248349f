"""When a request is sent again: only after an error that may pass, never before Retry-After, within the deadline.

The decision is one function without I/O; `Client` and `AsyncClient` differ only in how they wait.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import inf

from ferry_client.errors import ConnectionFailed, DeadlineExceeded, Overloaded, ServingError

#: Chosen: the upper bound of the random pause, which doubles from the first to the largest.
_FIRST_PAUSE_S, _LARGEST_PAUSE_S = 0.1, 2.0


class Deadline:
    """The end of a call, `timeout_s` seconds after this object is made."""

    def __init__(self, timeout_s: float, clock: Callable[[], float]) -> None:
        if not 0 < timeout_s < inf:
            raise ValueError(f"timeout_s must be a number of seconds above 0, not {timeout_s!r}")
        self._clock = clock
        self._at_s = clock() + timeout_s
        self._timeout_s = timeout_s

    def left_s(self) -> float:
        """Seconds until the deadline, above 0. Raises DeadlineExceeded."""
        left_s = self._at_s - self._clock()
        if left_s <= 0:
            raise self.exceeded()
        return left_s

    def comes_within(self, pause_s: float) -> bool:
        return self._clock() + pause_s >= self._at_s

    def exceeded(self) -> DeadlineExceeded:
        return DeadlineExceeded(f"No answer within {self._timeout_s:g} s")

    def __repr__(self) -> str:
        return f"<Deadline in {self._at_s - self._clock():.3f} s>"


def pause_before_retry_s(error: ServingError, attempt: int, attempts: int, deadline: Deadline) -> float | None:
    """How long to wait before the request is sent again; None: the error is final.

    A request may be sent twice, since inference changes nothing at the server.

    Args:
        attempt: the number of the attempt that failed, from 1.
        attempts: how many there may be.
    """
    # 1. Only an overloaded or unreachable server may answer better the next time.
    if not isinstance(error, Overloaded | ConnectionFailed) or attempt >= attempts:
        return None

    # 2. What the server asks for, and a random share on top: clients that were rejected together return apart.
    largest_s = min(_LARGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(attempt - 1, 10))
    pause_s = (error.retry_after_s or 0.0) + random.uniform(0.0, largest_s)  # noqa: S311 - no secret

    # 3. An attempt after the deadline would be useless.
    return None if deadline.comes_within(pause_s) else pause_s
