"""A loaded model whose calls begin only if they are expected to end within a time budget, and to fit into memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from types import MappingProxyType

from app.core.inference import Array
from app.core.time_budget import NoTimeLeft, TimeBudget
from app.core.values.value_hints import ValueHints
from app.loading.call_memory import MemoryBudget
from app.runtime import LoadedModel, hints_of, replicas_of

#: A first call that takes longer is made twice. Chosen: 64 rows would be foreseen at 3 s.
_LONG_S = 0.05


class BudgetedModel:
    """A LoadedModel, with its replicas, for all calls that a load makes by itself.

    A call cannot be interrupted, so its time is estimated before: calls of fewer cells (elements of inputs) took as
    long in proportion, at least as long as the shortest of them. The first call of a signature always begins; a long
    first call is made twice, for it may have chosen kernels, which no later call does (0.3 s on a GPU before calls of
    5 ms).

    Args:
        memory: the memory of calls of all replicas.
        known_rows: by signature, rows that the model is known to accept.

    Attributes:
        budget: the time of the calls; may be exchanged between two calls.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        budget: TimeBudget,
        clock: Callable[[], float] = time.perf_counter,
        memory: MemoryBudget | None = None,
        known_rows: Mapping[str, Sequence[Mapping[str, Array]]] = MappingProxyType({}),
    ) -> None:
        self.signatures = loaded.signatures
        self.known_rows = known_rows
        self.budget = budget
        self.memory = memory or MemoryBudget()
        self._loaded = loaded
        self._clock = clock
        self._waited_s = 0.0
        self._seconds: dict[str, dict[int, float]] = {}  # by signature and cells, the shortest call
        others = [each for each in replicas_of(loaded) if each is not loaded][1:]
        self._others = [BudgetedModel(each, budget, clock, self.memory, known_rows) for each in others]

    @property
    def replicas(self) -> Sequence[BudgetedModel]:
        return (self, *self._others)

    def use(self, budget: TimeBudget) -> None:
        """From the next call on, calls of all replicas are charged to this budget."""
        for replica in self.replicas:
            replica.budget = budget

    @contextmanager
    def within(self, budget: TimeBudget) -> Iterator[None]:
        """A block in which calls of all replicas are charged to this budget."""
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
        """Seconds of a clock to measure calls with: it stands still while a call waits until it may begin."""
        return self._clock() - self._waited_s

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        """Calls the model. Raises NoTimeLeft: the call would not end in time; TooMuchMemory: it would not fit."""
        cells = sum(array.size for array in inputs.values()) or 1  # rows may have no columns
        known = self._seconds.setdefault(signature, {})
        needed_s = self.expected_s(signature, cells)
        if known:
            self.memory.check(signature, cells)
        asked_s = self._clock()
        allowed = self.budget.allows(needed_s)
        self._waited_s += self._clock() - asked_s
        if not allowed and (known or self.budget.cancelled):
            raise NoTimeLeft(f"a call of signature {signature!r} would take {needed_s:.3g} s")

        def call() -> dict[str, Array]:
            begin_s = self._clock()
            results = self._loaded.run(signature, inputs, outputs)
            known[cells] = min(known.get(cells, inf), self._clock() - begin_s)
            return results

        first = not known
        results = self.memory.measured(signature, cells, inputs, call)
        if first and known[cells] > _LONG_S and self.budget.allows(known[cells]):
            results = self.memory.measured(signature, cells, inputs, call)
        return results

    def value_hints(self, signature: str) -> ValueHints:
        return hints_of(self._loaded, signature)

    def close(self) -> None:
        self._loaded.close()
