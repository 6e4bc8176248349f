"""The times of further tries after failures that may pass. The clock is an argument; nothing waits here."""

from __future__ import annotations

from collections.abc import Callable, Hashable

#: Seconds until the second try, and between two tries at most. Chosen.
FIRST_S, LONGEST_S = 1.0, 60.0


class Retries:
    """The tries of each key; the pause after a failure doubles from FIRST_S to LONGEST_S."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tries: dict[Hashable, tuple[int, float]] = {}

    def failed(self, key: Hashable) -> float:
        """Note a failed try. Returns the seconds until the next one."""
        tries, _ = self._tries.get(key, (0, 0.0))
        pause_s = min(FIRST_S * 2.0 ** min(tries, 32), LONGEST_S)
        self._tries[key] = tries + 1, self._clock() + pause_s
        return pause_s

    def due(self, key: Hashable) -> bool:
        """Whether the key has failed, and its pause is over."""
        return key in self._tries and self._clock() >= self._tries[key][1]

    def forget(self, key: Hashable) -> None:
        """Forget the failures of a key, which succeeded or is tried for another reason."""
        self._tries.pop(key, None)

    def __repr__(self) -> str:
        return f"<Retries {self._tries}>"
