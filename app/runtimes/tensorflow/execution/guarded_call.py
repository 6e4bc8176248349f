"""A variant that answers as plain does only for some values is called for these alone; plain answers the others."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from app.core.inference import Array, ModelSignature
from app.core.value_kinds import Reach, lies_within
from app.runtimes.tensorflow.execution.prepared_call import PreparedCall

#: Up to so many numbers the sum of squares is the quickest proof that all are small: 1.1 us instead of 2.8 for 64.
#: Larger sums are spread over threads, which costs more.
_SUMMED = 8192

_SUMMABLE = frozenset({np.dtype(np.float32), np.dtype(np.float64)})


class GuardedCall:
    """Called as a PreparedCall. One input with a value beyond the reach sends the whole call to plain."""

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


def guarded_inputs(signature: ModelSignature, reach: Reach) -> tuple[str, ...]:
    """The inputs whose type has values beyond the reach. Row splits are as large as the batch, and need no look."""
    splits = {name for names in signature.ragged.values() for name in names}
    return tuple(
        name for name, spec in signature.inputs.items() if name not in splits and not lies_within(spec.dtype, reach)
    )


def is_below(array: Array, bound: float) -> bool:
    """Are all absolute values below the bound? NaN is not."""
    size = array.size
    if size <= _SUMMED and array.dtype in _SUMMABLE and np.vdot(array, array) < bound * bound:
        return True
    if not size:
        return True
    if np.iscomplexobj(array):
        array = np.abs(array)
    with np.errstate(invalid="ignore"):  # ml_dtypes warns of NaN
        return bool(-bound < array.min() and array.max() < bound)
