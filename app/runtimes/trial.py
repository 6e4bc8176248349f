"""One signature at one batch size: what plain answers to examples, and how a variant compares."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from app.errors import InvalidRequest
from app.examples import example_inputs, random_inputs
from app.inference import Array
from app.runtimes.agreement import agree
from app.runtimes.failures import translate
from app.runtimes.signature_function import SignatureFunction
from app.runtimes.variants import NotApplicable, Variant

LEAST_ROUNDS = 3
_MOST_ROUNDS = 25
_ROUNDS_S = 0.05

#: A variant that takes this many times as long needs no second look where that takes longer than all rounds should:
#: it might take minutes. A short call may be slow by chance.
_FAR_SLOWER = 2.0


class Trial:
    """Runs plain twice, for its answer and its time.

    Args:
        clock: seconds that only grow.

    Raises:
        NotApplicable: plain refuses every example, or answers equal calls differently.
        ServingError: plain failed.
    """

    def __init__(self, function: SignatureFunction, rows: int, clock: Callable[[], float]) -> None:
        self._function = function
        self._clock = clock
        self.inputs, self._expected = self._accepted(rows)
        again, self.plain_s = self._timed(function.plain)
        if not agree(self._expected, again):
            raise NotApplicable("its answers to equal calls differ")

    def agrees(self, variant: Variant) -> bool:
        """Does the variant answer as plain does? Its first call, which may compile it."""
        return agree(self._expected, self._function.run(variant.graph, self.inputs))

    def speed_up(self, variant: Variant) -> float:
        """How many times as fast as plain the variant is: medians of calls in turn."""
        _, once_s = self._timed(variant.graph)
        if once_s > max(_FAR_SLOWER * self.plain_s, _ROUNDS_S):
            return self.plain_s / once_s
        plain_s: list[float] = []
        variant_s: list[float] = []
        end_s = self._clock() + _ROUNDS_S
        while len(plain_s) < LEAST_ROUNDS or (len(plain_s) < _MOST_ROUNDS and self._clock() < end_s):
            plain_s.append(self._timed(self._function.plain)[1])
            variant_s.append(self._timed(variant.graph)[1])
        return median(plain_s) / median(variant_s)

    def _accepted(self, rows: int) -> tuple[dict[str, Array], dict[str, Array]]:
        """Inputs that plain takes, and its answer: values that differ where it takes those, else zeros."""
        for examples in (random_inputs, example_inputs):
            inputs = examples(self._function.signature, rows)
            try:
                return inputs, self._function.run(self._function.plain, inputs)
            except Exception as error:
                if not isinstance(failure := translate(error), InvalidRequest):
                    raise failure from error
        raise NotApplicable("it refuses the example values")

    def _timed(self, graph: Callable[..., dict[str, Array]]) -> tuple[dict[str, Array], float]:
        start_s = self._clock()
        answer = self._function.run(graph, self.inputs)
        return answer, self._clock() - start_s
