"""The memory that a model's calls take, and whether there is room for a larger call.

A call cannot be stopped when it has taken too much: the system ends the server. So the memory of a call is estimated
from calls of fewer cells (elements of inputs): the peak of the process's memory while they ran, at least their inputs
and outputs. Other requests make such a peak larger, and a call may take more than smaller calls let expect: where
either may matter, a child process measures (memory_trial.py), and its figure counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from math import inf, isfinite

from app.core.inference import Array
from app.core.machine_memory import PeakMemory, loading_bytes
from app.core.time_budget import TooMuchMemory

#: Calls whose memory a step holds at once: the answers of the last call, and the next call.
_HELD = 2

#: The share of a call's limit from which on an estimate is not enough. Chosen.
_TIGHT = 1 / 4

#: A call is measured if it has more than this many times the cells of all measured ones. Chosen: a measurement costs
#: other requests time, since freed memory is given back before.
_STEP = 2

#: A call that takes less always fits. Chosen: to ask the system what is left takes about as long as such a call.
_SMALL_BYTES = 1 << 20


class MemoryBudget:
    """The memory of the calls of one version of a model, with all its replicas.

    Args:
        most_bytes: bytes that a step of its load may take now.
    """

    def __init__(self, most_bytes: Callable[[], float] = loading_bytes) -> None:
        self._most_bytes = most_bytes
        self._is_unlimited = most_bytes is _unlimited
        self._bytes: dict[str, dict[int, float]] = {}  # by signature and cells
        self._called: set[str] = set()

    @classmethod
    def unlimited(cls) -> MemoryBudget:
        """A budget for devices that reject by themselves a call that does not fit."""
        return cls(_unlimited)

    @property
    def call_bytes(self) -> float:
        """The bytes that a call may take now."""
        return self._most_bytes() / _HELD

    def check(self, signature: str, cells: int) -> None:
        """Raises TooMuchMemory if a call of this many cells is expected to take too much; the first never is."""
        needed = self.expected_bytes(signature, cells)
        if needed > _SMALL_BYTES and needed > (most := self.call_bytes):
            much = f"{_mb(needed)} MB of memory" if isfinite(needed) else "more memory than a child process may"
            raise TooMuchMemory(
                f"a call of signature {signature!r} would take {much}, and while it loads, calls may take "
                f"{_mb(most)} MB"
            )

    def expected_bytes(self, signature: str, cells: int) -> float:
        """The estimate for a call: of the next larger known call, or by the two next smaller ones; 0 without any."""
        known = self._bytes.get(signature, {})
        sizes = sorted(known)
        place = bisect_left(sizes, cells)
        # 1. A call of this size, or a larger one that does not take too much.
        if place < len(sizes) and (isfinite(known[sizes[place]]) or sizes[place] == cells):
            return known[sizes[place]]

        # 2. A line through the two next smaller calls.
        if not place:
            return 0.0
        last = sizes[place - 1]
        if place == 1 or not isfinite(known[last]):
            return known[last] * cells / last
        before = sizes[place - 2]
        slope = max(0.0, known[last] - known[before]) / (last - before)
        return known[last] + slope * (cells - last)

    def is_tight(self, signature: str, cells: int) -> bool:
        """Whether a call may take too much, so that a child process should measure it."""
        return self.expected_bytes(signature, cells) > _TIGHT * self.call_bytes

    def note(self, signature: str, cells: int, taken: float) -> None:
        """Notes the bytes that a call of this many cells took."""
        self._bytes.setdefault(signature, {})[cells] = taken

    def forget(self, signature: str) -> None:
        """Drops the figures of a signature, in whose place a child process measures."""
        self._bytes.pop(signature, None)

    def measured(
        self, signature: str, cells: int, inputs: Mapping[str, Array], call: Callable[[], dict[str, Array]]
    ) -> dict[str, Array]:
        """Makes the call, and notes its memory if no call of about its size is known."""
        if signature not in self._called:  # the first call also makes objects that stay in memory
            self._called.add(signature)
            return call()
        if self._is_unlimited or any(_STEP * each >= cells for each in self._bytes.get(signature, ())):
            return call()
        results, taken = measured_call(inputs, call)
        self.note(signature, cells, taken)
        return results


def measured_call(inputs: Mapping[str, Array], call: Callable[[], dict[str, Array]]) -> tuple[dict[str, Array], float]:
    """The results of a call, and the bytes that it took: the peak of memory, at least its inputs and outputs."""
    with PeakMemory() as peak:
        results = call()
    arrays = (*inputs.values(), *results.values())
    return results, max(peak.bytes, float(sum(array.nbytes for array in arrays)))


def _unlimited() -> float:
    return inf


def _mb(size: float) -> str:
    return f"{size / 2**20:,.0f}"
