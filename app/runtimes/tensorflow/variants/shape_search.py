"""The search for shapes for which a signature with free inner shapes is compiled: the padded shapes of its buckets.

Rules, beside those of variant_search.py
1. Compiled code is used at exactly its shapes. Nothing is compiled after the search: no caller waits for a compilation.
2. Compiled code must be faster than the present calls of the shorter inputs that would be padded to its shapes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from app.core.errors import InvalidRequest
from app.core.inference import Array
from app.core.machine_memory import loading_bytes
from app.core.time_budget import OverBudget, TimeBudget
from app.runtime import ShapeTrial
from app.runtimes.tensorflow.error_mapping import first_meaningful_line
from app.runtimes.tensorflow.execution.signature_function import SignatureFunction
from app.runtimes.tensorflow.execution.variant import Variant, VariantMaker
from app.runtimes.tensorflow.variants.trial import Trial, check_room, speed_up
from app.runtimes.tensorflow.variants.variant_search import COPIES, LEAST_GAIN, PRUNED_BELOW

logger = logging.getLogger(__name__)

#: The search ends when none of this many first shapes was faster. Chosen.
_PATIENCE = 4


@dataclass(slots=True, eq=False, repr=False)
class ShapeSearch:
    """The search for one signature: it compiles shapes, one after the other, and uses the faster ones.

    Attributes:
        budget: no step begins that is expected to end after it.
        expected_s: seconds expected for the first shape; for each further one, as many as the one before took.
        most_bytes: the bytes that a trial may take now.
        measured: False uses all shapes that are possible, without timing them.
    """

    function: SignatureFunction
    maker: VariantMaker
    budget: TimeBudget
    expected_s: float = 0.0
    measured: bool = True
    clock: Callable[[], float] = time.perf_counter
    most_bytes: Callable[[], float] = loading_bytes
    _variants: list[Variant] = field(default_factory=list)
    _growth: float = 1.0
    _slower: list[float] = field(default_factory=list)
    _rejected: set[str] = field(default_factory=set)

    def use_fastest(self, trials: Iterable[ShapeTrial]) -> list[float]:
        """The speed-up of each shape that was tried; 0 if compiled code is not used for it."""
        gains: list[float] = []
        try:
            for shape in trials:
                if not self.budget.allows(self.expected_s):
                    if not gains:
                        return []  # the shapes in use stay
                    break
                begin_s = self.clock()
                gains.append(self._gain(shape))
                self.expected_s = self.clock() - begin_s
                if self._is_pruned():
                    break
        except OverBudget:
            pass  # shapes that were found before count
        except Exception as error:
            logger.info(
                "Signature %r is compiled for no shape: %s", self.function.signature.name, first_meaningful_line(error)
            )
            return []  # code that failed or disagreed at one shape is not trusted at another
        self.function.use_compiled(self._variants)
        return gains

    def _gain(self, shape: ShapeTrial) -> float:
        """The speed-up of a shape by compiled code.

        Raises VariantNotPossible, OverBudget, or an error of TensorFlow, if the signature cannot be compiled.
        """
        # 1. The answer of plain. A shape that the model rejects is not compiled.
        function, inputs = self.function, shape.inputs
        rows = len(next(iter(inputs.values()))) if function.signature.batchable else 1
        # Answers are expected to grow with the inputs.
        check_room(COPIES * self._growth * _bytes(inputs), self.most_bytes())
        try:
            trial = Trial(function, inputs, rows, self.budget, self._rejected, clock=self.clock)
        except InvalidRequest as rejection:
            logger.debug("Signature %r rejects a shape of its buckets: %s", function.signature.name, rejection)
            return 0.0

        self._growth = max(self._growth, trial.bytes / max(1, _bytes(inputs)))

        # 2. Compile it and compare.
        variant = self.maker.compile(inputs)
        trial.check(variant)
        variant = replace(variant, reach=trial.reach(variant))
        compiled = function.prepare_variant(variant, inputs)

        # 3. Time it.
        gain = 1.0
        if self.measured:
            gain = speed_up(
                lambda: function(shape.shorter, ()), lambda: compiled(inputs), self.clock, budget=self.budget
            )
            if gain <= LEAST_GAIN:
                self._slower.append(gain)
                return 0.0
        self._variants.append(variant)
        return gain

    def _is_pruned(self) -> bool:
        slower = self._slower
        return bool(slower) and not self._variants and (min(slower) < PRUNED_BELOW or len(slower) == _PATIENCE)


def _bytes(arrays: Mapping[str, Array]) -> int:
    return sum(array.nbytes for array in arrays.values())
