"""Calls of a variant that was proven for some values only; plain answers calls with other values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.core.inference import Array
from app.core.values.value_kinds import Reach, is_below

#: A call of one signature with inputs of certain shapes. May be called from any thread.
Call = Callable[[Mapping[str, Array]], dict[str, Array]]


def guarded(variant: Call, plain: Call, inputs: tuple[str, ...], reach: Reach) -> Call:
    """The call of a variant, or of plain: one value of these inputs beyond the reach sends the whole call to plain."""
    bound = reach.bound

    def call(sent: Mapping[str, Array]) -> dict[str, Array]:
        for name in inputs:
            if not is_below(sent[name], bound):
                return plain(sent)
        return variant(sent)

    return call
