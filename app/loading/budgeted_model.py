"""A loaded model whose calls begin only if they are expected to end within a time budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from app.core.inference import Array
from app.core.time_budget import NoTimeLeft, TimeBudget
from app.runtime import LoadedModel, replicas_of


class BudgetedModel:
    """A LoadedModel, with its replicas, for all calls that a load makes by itself.

    A call cannot be interrupted, so its time is estimated before: calls of fewer cells (elements of inputs) took as
    long in proportion, at least as long as the shortest of them. The first call of a signature always begins.

    Attributes:
        budget: what calls are charged to; may be exchanged between two calls.
    """

    def __init__(self, loaded: LoadedModel, budget: TimeBudget, clock: Callable[[], float] = time.perf_counter) -> None:
        self.signatures = loaded.signatures
        self.budget = budget
        self._loaded = loaded
        self._clock = clock
        self._waited_s = 0.0
        self._seconds: dict[str, dict[int, float]] = {}  # by signature and cells, the shortest call
        others = [each for each in replicas_of(loaded) if each is not loaded][1:]
        self._others = [BudgetedModel(each, budget, clock) for each in others]

    @property
    def replicas(self) -> Sequence[BudgetedModel]:
        return (self, *self._others)

    def use(self, budget: TimeBudget) -> None:
        """From the next call on this budget counts, of all replicas."""
        for replica in self.replicas:
            replica.budget = budget

    @contextmanager
    def within(self, budget: TimeBudget) -> Iterator[None]:
        """In the block this budget counts, of all replicas."""
        before = self.budget
        self.use(budget)
        try:
            yield
        finally:
            self.use(before)

    def expected_s(self, signature: str, cells: float) -> float:
        """Seconds that a call of this many cells takes; 0 before the first call."""
        known = self._seconds.get(signature, {})
        return min((seconds * max(1.0, cells / each) for each, seconds in known.items()), default=0.0)

    def work_clock(self) -> float:
        """Seconds; it stands still while a call waits until it may begin. To measure calls with."""
        return self._clock() - self._waited_s

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        """As LoadedModel; raises NoTimeLeft if the call would not end in time."""
        cells = sum(array.size for array in inputs.values()) or 1  # rows may have no columns
        known = self._seconds.setdefault(signature, {})
        needed_s = self.expected_s(signature, cells)
        asked_s = self._clock()
        allowed = self.budget.allows(needed_s)
        begin_s = self._clock()
        self._waited_s += begin_s - asked_s
        if not allowed and (known or self.budget.cancelled):
            raise NoTimeLeft(f"a call of signature {signature!r} would take {needed_s:.3g} s")
        results = self._loaded.run(signature, inputs, outputs)
        known[cells] = min(known.get(cells, float("inf")), self._clock() - begin_s)
        return results

    def close(self) -> None:
        self._loaded.close()
