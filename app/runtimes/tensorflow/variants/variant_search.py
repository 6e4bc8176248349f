"""The search for the fastest variant of each signature at each batch size.

Rules
1. A variant is used only at sizes where it ran here and agreed with plain, on ordinary values and on unusual ones
   (value_kinds.py). A variant that fails or disagrees for ordinary values at one size is used at none; one that
   disagrees for huge values or for NaN is used for calls without them (guarded_call.py). A size that plain itself
   rejects (a model may take few rows in a call) is left out, with all larger ones, and says nothing of a variant.
2. A signature whose plain outputs differ between equal calls stays plain.
3. Plain and variant are timed by alternate calls, because a machine's speed drifts; the ratio of medians counts.
4. No step begins that is expected to end after the time for the search. Calls, rewriting a graph and compiling it
   cannot be interrupted, so their time is estimated: calls of fewer rows took as long in proportion; the first
   variant is made in a multiple of the time of tracing the graph, the next one as the last. The first XLA compilation
   of a signature begins only if half of the time is left, too, or as much as a step may take.
   No step begins that is expected to take more than a share of the memory left: the inputs and outputs of a row are
   measured first.
5. Each size is visited once, with all variants. The smallest and the largest come first: they show which variants
   are too slow to be tried at the others, and large calls, which take longest, are not left for the end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from itertools import chain, zip_longest
from math import inf

from app.core.machine_memory import loading_bytes
from app.core.time_budget import NoTimeLeft, OverBudget, TimeBudget, TooMuchMemory
from app.core.values.value_kinds import Reach
from app.runtime import ProgressReport, VariantChoice, VariantOptions
from app.runtimes.tensorflow.error_mapping import first_meaningful_line
from app.runtimes.tensorflow.execution.signature_function import SignatureFunction
from app.runtimes.tensorflow.execution.variant import (
    ALTERNATIVES,
    FROZEN,
    INLINE,
    PLAIN,
    XLA,
    Variant,
    VariantMaker,
)
from app.runtimes.tensorflow.variants.trial import LEAST_ROUNDS, Trial, ValuesRejected, check_room, try_signature

logger = logging.getLogger(__name__)

#: A variant must be this many times as fast as plain to replace it. Chosen: noise must not decide between equals.
LEAST_GAIN = 1.05

#: A variant that is slower than this at one size is pruned: it is not tried at the others. Chosen.
PRUNED_BELOW = 1 / 2

#: Inline saves some 50 us a call, but runs no operations at the same time: it is tried at sizes where plain takes less
#: than this many seconds. Chosen.
_INLINE_BELOW_S = 1e-3

#: Seconds to make a variant of a large graph, in multiples of the seconds that tracing it took: measured 12 times for
#: frozen (7,500 nodes; the first call included). XLA's were 10 to 25 times for those of docs/execution-variants.md.
_TRACES = {FROZEN: 12.0, INLINE: 12.0, XLA: 30.0}

#: Constant folding may compute all nodes that depend on variables alone, in multiples of the time of a call. A model
#: that was folded completely took 1.6 calls.
_FOLDS = 3.0

#: The most answers that a trial holds at the same time, copies in TensorFlow included.
COPIES = 12

#: Signature and batch size.
SizedSignature = tuple[str, int]


class _NotTried(Exception):
    """A variant is not tried at a size: it would make no difference there, or plain itself takes no such calls."""


class VariantSearch:
    """The search for one model: it tries variants of the signatures and puts the chosen ones to use.

    Args:
        functions: the signatures, none of which keeps state.
        sizes: the batch sizes of signatures that share calls, ascending.
        most_bytes: the bytes that a trial may take now.

    Attributes:
        lacked_memory: whether a size was not tried for lack of memory.
    """

    def __init__(
        self,
        functions: Mapping[str, SignatureFunction],
        sizes: Sequence[int],
        options: VariantOptions,
        report: ProgressReport,
        *,
        clock: Callable[[], float] = time.perf_counter,
        most_bytes: Callable[[], float] = loading_bytes,
        make_maker: Callable[[SignatureFunction], VariantMaker],
    ) -> None:
        # --- signatures and limits ---
        self._functions = functions
        self._sizes = sizes
        self._options = options
        self._report = report
        self._clock = clock
        self._most_bytes = most_bytes
        self._makers = {name: make_maker(function) for name, function in functions.items()}

        # --- findings so far ---
        self._best: dict[SizedSignature, tuple[Variant, float]] = {}
        self._rejected: dict[str, set[str]] = {name: set() for name in functions}
        self._making_s: dict[tuple[str, str], float] = {}
        self._trial: tuple[SizedSignature, Trial] | None = None
        self._done = self._total = 0
        self._plain_s: dict[str, dict[int, float]] = {name: {} for name in functions}
        self._row_bytes: dict[str, float] = {}
        self._most_rows: dict[str, int] = {}
        self.lacked_memory = False
        self._use(TimeBudget(inf, clock))

    def sized_signatures(self) -> list[SizedSignature]:
        """Every signature at every size; signatures that share no calls at size 1."""
        return [(name, size) for name in self._functions for size in self._sizes_of(name)]

    def choose_fastest(self, budget: TimeBudget) -> list[VariantChoice]:
        """Measures every variant, as far as the budget allows, and uses the fastest."""
        self._use(budget)
        self._total = len(ALTERNATIVES) * len(self.sized_signatures())
        candidates = {signature: dict.fromkeys(ALTERNATIVES, 0.0) for signature in self._functions}
        orders = [[(signature, size) for size in _ends_first(self._sizes_of(signature))] for signature in candidates]
        for signature, size in filter(None, chain.from_iterable(zip_longest(*orders))):
            self._measure(signature, size, candidates[signature])
        return self._install()

    def adopt(self, wanted: Iterable[VariantChoice], budget: TimeBudget | None = None) -> list[VariantChoice]:
        """Uses these variants without measuring, where they are possible, with the given speed-ups.

        Unusual values are tried only where the choice has no reach.
        """
        if budget is not None:
            self._use(budget)
        wanted = [choice for choice in wanted if choice.variant != PLAIN]
        self._total = len(wanted)
        impossible: set[tuple[str, str]] = set()
        for signature, size, name, speed_up, known in map(astuple, wanted):
            self._report_trial(signature, size, name)
            if (signature, name) in impossible:
                continue
            try:
                trial = self._trial_of(signature, size)
                variant = self._agreeing(signature, name, trial)
                reach = trial.reach(variant) if known is None else known
                self._best[signature, size] = replace(variant, reach=reach), speed_up
            except (OverBudget, _NotTried) as error:  # other sizes may be possible
                logger.info("%s", _why_not(signature, size, name, error))
            except Exception as error:  # a variant that fails at one size is used at none
                logger.info("%s", _why_not(signature, size, name, error))
                impossible.add((signature, name))
                self._drop(signature, name)
        return self._install()

    def _measure(self, signature: str, size: int, candidates: dict[str, float]) -> None:
        """Tries the candidates at one size, the best so far first, and removes those that need no further trial."""
        for name in sorted(candidates, key=lambda name: -candidates[name]):
            self._report_trial(signature, size, name)
            try:
                speed_up = self._speed_up(signature, size, name)
            except Exception as error:
                logger.debug("%s", _why_not(signature, size, name, error))
                if not isinstance(error, OverBudget | _NotTried):
                    self._drop(signature, name)
                    del candidates[name]
            else:
                candidates[name] = max(candidates[name], speed_up)
                if speed_up < PRUNED_BELOW:
                    del candidates[name]

    def _speed_up(self, signature: str, size: int, name: str) -> float:
        # 1. Make it, if there is time for that.
        trial = self._trial_of(signature, size)
        if name == INLINE and trial.plain_s > _INLINE_BELOW_S:
            raise _NotTried("calls take too long for it to matter")
        self._check_time(self._making_s.get((signature, name), self._expected_s(signature, name, trial)))
        begin_s = self._clock()
        variant = self._agreeing(signature, name, trial)
        self._making_s[signature, name] = self._clock() - begin_s

        # 2. Time it, if there is time for that.
        self._check_time(2 * LEAST_ROUNDS * trial.plain_s)
        speed_up = trial.speed_up(variant)

        # 3. If it is the fastest so far, find out which values it may be used for.
        _, best = self._best.get((signature, size), (None, LEAST_GAIN))
        if speed_up > best:
            variant = replace(variant, reach=trial.reach(variant))
            self._best[signature, size] = variant, speed_up
        return speed_up

    def _agreeing(self, signature: str, name: str, trial: Trial) -> Variant:
        """Makes a variant that agrees with plain. Raises VariantNotPossible, or an error of TensorFlow."""
        variant = self._makers[signature].make(name, trial.inputs)
        trial.check(variant)
        return variant

    def _trial_of(self, signature: str, size: int) -> Trial:
        """The trial of a signature at a size.

        Raises OverBudget if there is not enough time or memory, _NotTried of more rows than plain takes, else as
        try_signature.
        """
        if self._trial is None or self._trial[0] != (signature, size):
            self._trial = None
            if size > 1 and signature not in self._row_bytes:
                self._try(signature, 1)
            self._check_time(2 * self._plain_expected_s(signature, size))
            self._check_room(signature, size)
            if size > self._most_rows.get(signature, size):
                raise _NotTried(f"the model takes at most {self._most_rows[signature]} rows in a call")
            try:
                self._trial = (signature, size), self._try(signature, size)
            except ValuesRejected as error:
                if size == 1:
                    raise
                # It takes fewer rows: a limit of the signature does not concern its variants at other sizes.
                self._most_rows[signature] = size - 1
                raise _NotTried(str(error)) from error
        return self._trial[1]

    def _try(self, signature: str, size: int) -> Trial:
        function, rejected = self._functions[signature], self._rejected[signature]
        trial = try_signature(function, size, self._budget, rejected, self._clock)
        self._plain_s[signature][size] = trial.plain_s
        self._row_bytes[signature] = max(self._row_bytes.get(signature, 0.0), trial.bytes / size)
        return trial

    def _use(self, budget: TimeBudget) -> None:
        self._budget = budget
        self._search_s = budget.left_s

    def _expected_s(self, signature: str, name: str, trial: Trial) -> float:
        """The estimated seconds to make a variant, which cannot be interrupted, before the first one was made."""
        expected_s = _TRACES[name] * self._functions[signature].traced_s + _FOLDS * trial.plain_s
        unknown_s = min(self._search_s / 2, self._budget.longest_s)
        return max(expected_s, unknown_s) if name == XLA and unknown_s < inf else expected_s

    def _plain_expected_s(self, signature: str, size: int) -> float:
        known = self._plain_s[signature].items()
        return min((seconds * max(1.0, size / each) for each, seconds in known), default=0.0)

    def _check_room(self, signature: str, size: int) -> None:
        try:
            check_room(COPIES * size * self._row_bytes.get(signature, 0.0), self._most_bytes())
        except TooMuchMemory:
            self.lacked_memory = True
            raise

    def _check_time(self, needed_s: float) -> None:
        if not self._budget.allows(needed_s):
            raise NoTimeLeft("there is no time left to try it")

    def _drop(self, signature: str, name: str) -> None:
        self._best = {
            sized: best for sized, best in self._best.items() if sized[0] != signature or best[0].name != name
        }

    def _install(self) -> list[VariantChoice]:
        self._trial = None
        for signature, function in self._functions.items():
            function.use({size: best for (name, size), (best, _) in self._best.items() if name == signature})
        return [self._choice(*sized) for sized in self.sized_signatures()]

    def _choice(self, signature: str, size: int) -> VariantChoice:
        variant, speed_up = self._best.get((signature, size), (None, 1.0))
        if variant is None:
            return VariantChoice(signature, size, PLAIN, speed_up, Reach.ANY)
        return VariantChoice(signature, size, variant.name, speed_up, variant.reach)

    def _sizes_of(self, signature: str) -> Sequence[int]:
        return self._sizes if self._functions[signature].signature.shares_calls else (1,)

    def _report_trial(self, signature: str, size: int, name: str) -> None:
        self._done += 1
        rows = f"{size} {'row' if size == 1 else 'rows'}"
        self._report(self._done, self._total, f"trying {name} for signature {signature!r} with {rows}")


def _ends_first(sizes: Sequence[int]) -> list[int]:
    """The smallest, the largest, then the others from the largest down."""
    return [*sizes[:1], *reversed(sizes[1:])]


def _why_not(signature: str, size: int, variant: str, error: Exception) -> str:
    return f"Signature {signature!r} does not run {variant} at batch size {size}: {first_meaningful_line(error)}"
