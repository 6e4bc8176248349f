"""One signature at one batch size: what plain answers to example inputs, and how a variant compares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from app.core.agreement import agree
from app.core.errors import InvalidRequest
from app.core.inference import Array
from app.core.sample_inputs import random_inputs, zero_inputs
from app.runtimes.tensorflow.error_mapping import map_error
from app.runtimes.tensorflow.execution.signature_function import SignatureFunction
from app.runtimes.tensorflow.execution.variant import Variant, VariantNotPossible

Call = Callable[[Mapping[str, Array]], dict[str, Array]]

#: Calls of each form that are timed: at least, at most, and seconds after which none is added. Chosen.
LEAST_ROUNDS = 3
_MOST_ROUNDS = 25
_ROUNDS_S = 0.05

#: One call is enough if it takes this many times as long, or as short, as plain's, and longer than all rounds should
#: take: it might take minutes. A short call may be slow by chance, so it is repeated. Chosen.
_FAR = 2.0


class Trial:
    """Runs plain twice, for its answer and its time.

    Raises:
        VariantNotPossible: plain rejects every example, or its answers to equal calls differ.
        ServingError: plain failed.
    """

    def __init__(self, function: SignatureFunction, rows: int, clock: Callable[[], float]) -> None:
        self._function = function
        self._clock = clock
        self.inputs, self._plain, self._expected = self._accepted(rows)
        begin_s = clock()
        again = self._plain(self.inputs)
        self.plain_s = clock() - begin_s
        if not agree(self._expected, again):
            raise VariantNotPossible("its answers to equal calls differ")

    def agrees(self, variant: Variant) -> bool:
        """Does the variant answer as plain does? This is its first call, at which XLA compiles it."""
        return agree(self._expected, self._function.prepare(variant.graph, self.inputs)(self.inputs))

    def speed_up(self, variant: Variant) -> float:
        """How many times as fast as plain the variant is."""
        call = self._function.prepare(variant.graph, self.inputs)
        return speed_up(lambda: self._plain(self.inputs), lambda: call(self.inputs), self._clock, self.plain_s)

    def _accepted(self, rows: int) -> tuple[dict[str, Array], Call, dict[str, Array]]:
        """Inputs that plain accepts (random values, else zeros), the call for them, and its answer."""
        for examples in (random_inputs, zero_inputs):
            inputs = examples(self._function.signature, rows)
            call = self._function.prepare(self._function.plain, inputs)
            try:
                return inputs, call, call(inputs)
            except Exception as error:
                if not isinstance(failure := map_error(error), InvalidRequest):
                    raise failure from error
        raise VariantNotPossible("it rejects the example values")


def speed_up(
    plain: Callable[[], Any], variant: Callable[[], Any], clock: Callable[[], float], plain_s: float | None = None
) -> float:
    """How many times as fast the variant is: the ratio of medians of alternate calls. `plain_s` if it is known."""

    def timed(call: Callable[[], Any]) -> float:
        start_s = clock()
        call()
        return clock() - start_s

    # 1. One call of each: enough if they are far apart and long.
    known_s = timed(plain) if plain_s is None else plain_s
    once_s = timed(variant)
    slower_s, faster_s = max(known_s, once_s), min(known_s, once_s)
    if slower_s > max(_FAR * faster_s, _ROUNDS_S):
        return known_s / once_s

    # 2. Otherwise several calls, alternately, because a machine's speed drifts.
    plain_all_s: list[float] = []
    variant_all_s: list[float] = []
    end_s = clock() + _ROUNDS_S
    while len(plain_all_s) < LEAST_ROUNDS or (len(plain_all_s) < _MOST_ROUNDS and clock() < end_s):
        plain_all_s.append(timed(plain))
        variant_all_s.append(timed(variant))
    return median(plain_all_s) / median(variant_all_s)
