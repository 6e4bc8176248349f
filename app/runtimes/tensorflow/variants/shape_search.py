"""Compiling a signature whose inner shapes are free, for those that its buckets are padded to.

Invariants, beside those of variant_search.py:
1. What is compiled is used at exactly its shapes. Nothing is compiled once the search is over: no caller waits for it.
2. It has to beat what runs now for the shorter inputs that would be padded to these shapes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from app.core.agreement import agree
from app.core.time_budget import TimeBudget
from app.runtime import ShapeTrial
from app.runtimes.tensorflow.error_mapping import first_meaningful_line
from app.runtimes.tensorflow.execution.signature_function import SignatureFunction
from app.runtimes.tensorflow.variants.trial import speed_up
from app.runtimes.tensorflow.variants.variant import Variant, VariantMaker, VariantNotPossible
from app.runtimes.tensorflow.variants.variant_search import HOPELESS, LEAST_GAIN

logger = logging.getLogger(__name__)

#: Where so many shapes in a row, the first ones, gain nothing, no other is tried.
_PATIENCE = 4


class ShapeSearch:
    """
    Args:
        budget: nothing begins that is expected to end after it.
        first_s: how long the first may take; the others as long as the one before.
        measured: without, everything that is possible is used.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        function: SignatureFunction,
        maker: VariantMaker,
        budget: TimeBudget,
        *,
        first_s: float = 0.0,
        measured: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._function = function
        self._maker = maker
        self._budget = budget
        self._clock = clock
        self._needed_s = first_s
        self._measured = measured
        self._variants: list[Variant] = []
        self._slower: list[float] = []

    def use_fastest(self, trials: Iterable[ShapeTrial]) -> list[float]:
        """How many times as fast each is, as far as the time went; 0 where it is not used."""
        gains: list[float] = []
        try:
            for trial in trials:
                if not self._budget.allows(self._needed_s):
                    break
                begin_s = self._clock()
                gains.append(self._gain(trial))
                self._needed_s = self._clock() - begin_s
                if self._is_hopeless():
                    break
        except Exception as error:
            logger.info("Signature %r is not compiled: %s", self._function.signature.name, first_meaningful_line(error))
            return []  # what failed or disagreed at one shape is not trusted at another
        self._function.use_compiled(self._variants)
        return gains

    def _gain(self, trial: ShapeTrial) -> float:
        """Raises VariantNotPossible, or whatever TensorFlow says of what it cannot compile."""
        function, inputs = self._function, trial.inputs
        plain = function.prepare(function.plain, inputs)
        try:
            expected = plain(inputs)
        except Exception as error:
            logger.debug("The model does not take a shape: %s", first_meaningful_line(error))
            return 0.0
        if not agree(expected, plain(inputs)):
            raise VariantNotPossible("its answers to equal calls differ")
        variant = self._maker.compile(inputs)
        compiled = function.prepare(variant.graph, inputs)
        if not agree(expected, compiled(inputs)):
            raise VariantNotPossible("its answers differ from plain's")
        gain = 1.0
        if self._measured:
            gain = speed_up(lambda: function(trial.shorter, ()), lambda: compiled(inputs), self._clock)
            if gain <= LEAST_GAIN:
                self._slower.append(gain)
                return 0.0
        self._variants.append(variant)
        return gain

    def _is_hopeless(self) -> bool:
        slower = self._slower
        return bool(slower) and not self._variants and (min(slower) < HOPELESS or len(slower) == _PATIENCE)
