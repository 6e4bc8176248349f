"""How much memory a model's calls take, and whether there is room for a larger one.

A call cannot be stopped when it has taken too much: the system ends the server. So what each call takes is expected
from calls of fewer cells (elements of inputs): the peak of the process's memory while they ran, at least their inputs
and outputs. Other requests make such a peak larger, and calls may take more than their smaller ones let expect: where
either may matter, a child process finds out (memory_trial.py), and what it measured counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from math import inf, isfinite

from app.core.inference import Array
from app.core.machine_memory import PeakMemory, loading_bytes
from app.core.time_budget import TooMuchMemory

#: A step holds the answers of a call while it makes the next one.
_HELD = 2

#: Of what a call may take. Chosen: from there on an estimate is not enough.
_TIGHT = 1 / 4

#: A call is measured if it has more than this many times the cells of all that were. Chosen: measuring costs other
#: requests time, since freed memory is given back before.
_STEP = 2


class MemoryBudget:
    """Of one version of a model and all its replicas.

    Args:
        most_bytes: bytes that a step of its load may take now.
    """

    def __init__(self, most_bytes: Callable[[], float] = loading_bytes) -> None:
        self._most_bytes = most_bytes
        self._bytes: dict[str, dict[int, float]] = {}  # by signature and cells
        self._called: set[str] = set()

    @classmethod
    def unlimited(cls) -> MemoryBudget:
        """For devices that refuse by themselves what does not fit."""
        return cls(lambda: inf)

    @property
    def call_bytes(self) -> float:
        """What a call may take now."""
        return self._most_bytes() / _HELD

    def check(self, signature: str, cells: int) -> None:
        """Raises TooMuchMemory if a call of this many cells is expected to take too much; the first never is."""
        needed, most = self.expected_bytes(signature, cells), self.call_bytes
        if needed > most:
            much = f"{_mb(needed)} MB of memory" if isfinite(needed) else "more memory than a child process may"
            raise TooMuchMemory(
                f"a call of signature {signature!r} would take {much}, and while it loads, calls may take "
                f"{_mb(most)} MB"
            )

    def expected_bytes(self, signature: str, cells: int) -> float:
        """What a call takes: as the next larger one that is known, or by the two next smaller ones; 0 if none is."""
        known = self._bytes.get(signature, {})
        sizes = sorted(known)
        place = bisect_left(sizes, cells)
        # 1. One of this size, or a larger one that does not take too much.
        if place < len(sizes) and (isfinite(known[sizes[place]]) or sizes[place] == cells):
            return known[sizes[place]]

        # 2. From smaller ones.
        if not place:
            return 0.0
        last = sizes[place - 1]
        if place == 1 or not isfinite(known[last]):
            return known[last] * cells / last
        before = sizes[place - 2]
        slope = max(0.0, known[last] - known[before]) / (last - before)
        return known[last] + slope * (cells - last)

    def is_tight(self, signature: str, cells: int) -> bool:
        """Whether a call may take too much, so that it should be measured where it harms nobody."""
        return self.expected_bytes(signature, cells) > _TIGHT * self.call_bytes

    def note(self, signature: str, cells: int, taken: float) -> None:
        """A call of this many cells takes as many bytes, as was measured where nothing else ran."""
        self._bytes.setdefault(signature, {})[cells] = taken

    def forget(self, signature: str) -> None:
        """What was measured here is not believed: a child process measures it."""
        self._bytes.pop(signature, None)

    def measured(
        self, signature: str, cells: int, inputs: Mapping[str, Array], call: Callable[[], dict[str, Array]]
    ) -> dict[str, Array]:
        """Makes the call, and notes what it takes if no call of about its size is known."""
        if self._most_bytes() == inf:
            return call()
        if signature not in self._called:  # the first call also makes what stays in memory
            self._called.add(signature)
            return call()
        if any(_STEP * each >= cells for each in self._bytes.get(signature, ())):
            return call()
        with PeakMemory() as peak:
            results = call()
        arrays = (*inputs.values(), *results.values())
        self.note(signature, cells, max(peak.bytes, float(sum(array.nbytes for array in arrays))))
        return results


def _mb(size: float) -> str:
    return f"{size / 2**20:,.0f}"
