"""When a request is tried again: where that may help, not before the server asks, and within the call's time."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from tenacity import RetryCallState, retry_if_exception_type, wait_random_exponential

from ferry_client.errors import ConnectionFailed, DeadlineExceeded, Overloaded

#: Inference changes nothing at the server, so a request whose fate is unknown may be sent again.
WORTHWHILE = retry_if_exception_type((Overloaded, ConnectionFailed))

#: Random, so that clients that were refused together do not return together.
_BACKOFF = wait_random_exponential(multiplier=0.1, max=2.0)


class Deadline:
    """The end of a call."""

    def __init__(self, timeout_s: float, clock: Callable[[], float]) -> None:
        if not 0 < timeout_s < inf:
            raise ValueError(f"timeout_s must be a number of seconds above 0, not {timeout_s!r}")
        self._clock = clock
        self._at_s = clock() + timeout_s
        self._timeout_s = timeout_s

    def left_s(self) -> float:
        """Above 0. Raises DeadlineExceeded."""
        left_s = self._at_s - self._clock()
        if left_s <= 0:
            raise self.exceeded()
        return left_s

    def comes_within(self, pause_s: float) -> bool:
        return self._clock() + pause_s >= self._at_s

    def exceeded(self) -> DeadlineExceeded:
        return DeadlineExceeded(f"No answer within {self._timeout_s:g} s")


def pause_s(state: RetryCallState) -> float:
    """What the server asked for and a random, growing share on top."""
    error = state.outcome.exception() if state.outcome else None
    return (getattr(error, "retry_after_s", None) or 0.0) + _BACKOFF(state)


def exhausted(deadline: Deadline, attempts: int) -> Callable[[RetryCallState], bool]:
    """True where another attempt would be one too many or too late: then the last error is the call's."""

    def is_exhausted(state: RetryCallState) -> bool:
        return state.attempt_number >= attempts or deadline.comes_within(state.upcoming_sleep)

    return is_exhausted
