"""The thread that makes served versions faster while nothing else needs the machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from app.loading.improvement import Improvement
from app.loading.switch_interval import short_switch_interval

#: Seconds between two polls of the server's idleness. Chosen.
_POLL_S = 0.01

#: A busy server counts as idle again after this many idle polls in a row. Chosen.
_IDLE_POLLS = 3

#: On a server that is never idle the work gets this share of the time. Chosen.
_LEAST_SHARE = 0.05


class Improver:
    """The queue of improvements and the thread that runs them, the newest first: a new version soon gets all requests.

    An improvement that needs more than its time goes on when the others are done, and lets newer ones go first.

    Its thread has the priority of the event loop's: one of lower priority that holds the GIL would keep it as long as
    other processes keep the cores.

    Args:
        is_idle: whether no request waits or is computed and no version is being loaded. Called on the thread.
    """

    def __init__(self, is_idle: Callable[[], bool]) -> None:
        self._is_idle = is_idle
        self._waiting: list[Improvement] = []
        self._changed = threading.Condition()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, improvement: Improvement) -> None:
        """Adds an improvement; newer ones go first. May be called from any thread."""
        improvement.announce()
        with self._changed:
            self._waiting.append(improvement)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="improver", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Begin no further call of a model. Does not wait for the present call."""
        self._ended.set()
        with self._changed:
            self._changed.notify()

    def _run(self) -> None:
        while (improvement := self._next()) is not None:
            self._improve(improvement)
            del improvement  # the model's memory is freed while the thread waits

    def _improve(self, improvement: Improvement) -> None:
        def is_unwanted() -> bool:
            return improvement.model.closing or (improvement.is_later_round and self._first_rounds_wait())

        gate = IdleGate(self._is_idle, is_unwanted, self._ended.wait)
        with short_switch_interval():
            unfinished = improvement.run(gate, lambda: not (is_unwanted() or self._ended.is_set()))
        if unfinished:
            with self._changed:
                self._waiting.insert(0, improvement)  # after all others

    def _first_rounds_wait(self) -> bool:
        return any(not each.is_later_round for each in list(self._waiting))

    def _next(self) -> Improvement | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended.is_set())
            return None if self._ended.is_set() else self._waiting.pop()


class IdleGate:
    """The gate before each call: it opens at once on an idle server, later on a busy one; False if work is unwanted.

    A call is followed by a pause until the server is idle, but the pause is never so long that the calls get less than
    _LEAST_SHARE of the time.

    Args:
        wait: waits for this many seconds; True as soon as the whole server ends.
    """

    def __init__(
        self,
        is_idle: Callable[[], bool],
        is_unwanted: Callable[[], bool],
        wait: Callable[[float], bool],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._is_idle = is_idle
        self._is_unwanted = is_unwanted
        self._wait = wait
        self._clock = clock
        self._opened_s = clock()

    def __call__(self) -> bool:
        now = self._clock()
        give_up_s = now + (now - self._opened_s) * (1 / _LEAST_SHARE - 1)
        idle_polls, wanted_polls = 0, 1
        while not self._is_unwanted():
            idle_polls = idle_polls + 1 if self._is_idle() else 0
            if idle_polls >= wanted_polls or self._clock() >= give_up_s:
                self._opened_s = self._clock()
                return not self._wait(0.0)
            if not idle_polls:
                wanted_polls = _IDLE_POLLS
            if self._wait(_POLL_S):
                break
        return False
