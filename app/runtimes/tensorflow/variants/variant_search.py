"""Finding the fastest variant of each signature at each batch size.

Invariants:
1. A variant is used only at sizes where it ran here and agreed with plain, on values that differ where
   plain takes such.
2. A signature whose plain outputs differ between equal calls stays plain.
3. Measured is in turn, plain and variant, since a machine's speed drifts; what counts is the ratio of medians.
4. Nothing begins that would foreseeably end after the time for the search. A compilation cannot be
   interrupted: XLA's first begins only while half of the time is left, the next ones only while as much is left
   as the last one took.
5. Sizes are gone through once, the smallest and the largest first, each with all variants: what they say decides
   which variants are worth the time at the others, and large calls, which cost the most, are not left for the end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any

from app.core.inference import ModelSignature
from app.core.time_budget import TimeBudget
from app.runtime import ProgressReport, VariantChoice, VariantOptions
from app.runtimes.tensorflow.error_mapping import first_meaningful_line
from app.runtimes.tensorflow.execution.signature_function import SignatureFunction
from app.runtimes.tensorflow.variants.trial import LEAST_ROUNDS, Trial
from app.runtimes.tensorflow.variants.variant import ALTERNATIVES, PLAIN, XLA, Variant, VariantMaker, VariantNotPossible

logger = logging.getLogger(__name__)

#: Leaving plain must gain this much, or noise would decide.
LEAST_GAIN = 1.05

#: A variant this slow at one size is not tried at the others; nor one that is slower than plain at both ends.
HOPELESS = 1 / 3

#: One that is so much slower than another at both ends is tried elsewhere only where there is no time for the other.
OUTDONE = 0.8

#: Signature and batch size.
Place = tuple[str, int]

#: By variant, the speed-ups at the sizes tried so far.
Gains = dict[str, list[float]]


class VariantSearch:
    """Tries variants of a model's signatures and puts the chosen ones to use.

    Args:
        functions: the signatures, none of which keeps state.
        sizes: the batch sizes that signatures which can be batched are called with, ascending.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        functions: Mapping[str, SignatureFunction],
        sizes: Sequence[int],
        options: VariantOptions,
        report: ProgressReport,
        *,
        clock: Callable[[], float] = time.perf_counter,
        make_maker: Callable[[ModelSignature, Any, int], VariantMaker] = VariantMaker,
    ) -> None:
        self._functions = functions
        self._sizes = sizes
        self._options = options
        self._report = report
        self._clock = clock
        self._makers = {
            name: make_maker(function.signature, function.plain, options.frozen_limit_mb)
            for name, function in functions.items()
        }
        self._best: dict[Place, tuple[Variant, float]] = {}
        self._made_s: dict[tuple[str, str], float] = {}
        self._trial: tuple[Place, Trial] | None = None
        self._done = self._total = 0
        self._budget = TimeBudget(0.0, clock)

    def places(self) -> list[Place]:
        """Every signature at every size, the ones that cannot be batched at size 1."""
        return [(name, size) for name in self._functions for size in self._sizes_of(name)]

    def fastest(self, budget: TimeBudget) -> list[VariantChoice]:
        """Measures every variant that is not forbidden, as far as the budget allows, and uses the fastest."""
        self._budget = budget
        names = [name for name in ALTERNATIVES if name not in self._options.forbidden]
        self._total = len(names) * len(self.places())
        gains: dict[str, Gains] = {signature: {name: [] for name in names} for signature in self._functions}
        orders = [[(signature, size) for size in _ends_first(self._sizes_of(signature))] for signature in gains]
        for signature, size in filter(None, chain.from_iterable(zip_longest(*orders))):
            self._measure(signature, size, gains[signature])
        return self._use()

    def adopt(self, wanted: Mapping[Place, tuple[str, float]]) -> list[VariantChoice]:
        """Uses these variants without measuring, each with the speed-up given, where they are possible."""
        wanted = {place: chosen for place, chosen in wanted.items() if chosen[0] != PLAIN}
        self._total = len(wanted)
        impossible: set[tuple[str, str]] = set()
        for (signature, size), (name, speed_up) in wanted.items():
            self._tell(signature, size, name)
            if (signature, name) in impossible:
                continue
            try:
                self._best[signature, size] = self._agreeing(signature, size, name)[0], speed_up
            except Exception as error:
                logger.warning("%s", _why_not(signature, size, name, error))
                impossible.add((signature, name))
                self._drop(signature, name)
        return self._use()

    def _measure(self, signature: str, size: int, gains: Gains) -> None:
        """The variants in `gains` at one size, the best so far first; drops those that are not worth another look."""
        measured: list[str] = []
        for name in sorted(gains, key=lambda name: -max(gains[name], default=0.0)):
            if any(_outdone(gains[name], gains[other]) for other in measured):
                continue
            self._tell(signature, size, name)
            try:
                gains[name].append(self._speed_up(signature, size, name))
            except Exception as error:
                logger.debug("%s", _why_not(signature, size, name, error))
                if not isinstance(error, _NoTime):
                    self._drop(signature, name)
                    del gains[name]
                continue
            if _hopeless(gains[name]):
                del gains[name]
            else:
                measured.append(name)

    def _speed_up(self, signature: str, size: int, name: str) -> float:
        unknown_s = self._budget.seconds / 2 if name == XLA else 0.0
        self._check_time(self._made_s.get((signature, name), unknown_s))
        begin_s = self._clock()
        variant, trial = self._agreeing(signature, size, name)
        self._made_s[signature, name] = self._clock() - begin_s
        self._check_time(2 * LEAST_ROUNDS * trial.plain_s)
        speed_up = trial.speed_up(variant)
        _, best = self._best.get((signature, size), (None, LEAST_GAIN))
        if speed_up > best:
            self._best[signature, size] = variant, speed_up
        return speed_up

    def _agreeing(self, signature: str, size: int, name: str) -> tuple[Variant, Trial]:
        """Raises VariantNotPossible, or whatever TensorFlow says."""
        if self._trial is None or self._trial[0] != (signature, size):
            self._trial = (signature, size), Trial(self._functions[signature], size, self._clock)
        trial = self._trial[1]
        variant = self._makers[signature].make(name, trial.inputs)
        if not trial.agrees(variant):
            raise VariantNotPossible("its answers differ from plain's")
        return variant, trial

    def _check_time(self, needed_s: float) -> None:
        if not self._budget.allows(needed_s):
            raise _NoTime("there is no time left to try it")

    def _drop(self, signature: str, name: str) -> None:
        """What failed or disagreed at one size is not trusted at another."""
        self._best = {
            place: best for place, best in self._best.items() if place[0] != signature or best[0].name != name
        }

    def _use(self) -> list[VariantChoice]:
        self._trial = None
        for signature, function in self._functions.items():
            function.use({size: best for (name, size), (best, _) in self._best.items() if name == signature})
        return [self._choice(*place) for place in self.places()]

    def _choice(self, signature: str, size: int) -> VariantChoice:
        if (signature, size) not in self._best:
            return VariantChoice(signature, size, PLAIN, 1.0)
        variant, speed_up = self._best[signature, size]
        return VariantChoice(signature, size, variant.name, speed_up)

    def _sizes_of(self, signature: str) -> Sequence[int]:
        return self._sizes if self._functions[signature].signature.batchable else (1,)

    def _tell(self, signature: str, size: int, name: str) -> None:
        self._done += 1
        rows = f"{size} {'row' if size == 1 else 'rows'}"
        self._report(self._done, self._total, f"trying {name} for signature {signature!r} with {rows}")


class _NoTime(Exception):
    """The time for the search is over, or would be."""


def _hopeless(gains: Sequence[float]) -> bool:
    return gains[-1] < HOPELESS or (len(gains) == 2 and max(gains) < 1)


def _outdone(gains: Sequence[float], others: Sequence[float]) -> bool:
    """At both ends, by another that was measured here too."""
    return len(gains) >= 2 and all(gain < OUTDONE * other for gain, other in zip(gains[:2], others[:2], strict=True))


def _ends_first(sizes: Sequence[int]) -> list[int]:
    """The smallest, the largest, then the others from the largest down."""
    return [*sizes[:1], *reversed(sizes[1:])]


def _why_not(signature: str, size: int, variant: str, error: Exception) -> str:
    return f"Signature {signature!r} is not {variant} at batch size {size}: {first_meaningful_line(error)}"
