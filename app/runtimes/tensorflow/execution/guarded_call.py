"""Calls of a variant that was proven for some values alone; plain answers calls with others."""

from __future__ import annotations

from collections.abc import Mapping

from app.core.inference import Array
from app.core.values.value_kinds import Reach, is_below
from app.runtimes.tensorflow.execution.prepared_call import PreparedCall


class GuardedCall:
    """A call, as a PreparedCall, of a variant or of plain: one value beyond the reach sends the whole call to plain."""

    def __init__(self, variant: PreparedCall, plain: PreparedCall, inputs: tuple[str, ...], reach: Reach) -> None:
        self._variant = variant
        self._plain = plain
        self._inputs = inputs
        self._bound = reach.bound

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        for name in self._inputs:
            if not is_below(inputs[name], self._bound):
                return self._plain(inputs)
        return self._variant(inputs)
