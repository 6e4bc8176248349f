"""The trial of variants of one signature with inputs of certain shapes: they are compared with plain."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from app.core.agreement import agree, moved_inputs, tolerances_of
from app.core.errors import InvalidRequest, ServingError
from app.core.inference import Array, ModelSignature
from app.core.time_budget import NoTimeLeft, OverBudget, TimeBudget, TooMuchMemory
from app.core.values.sample_inputs import SEED
from app.core.values.value_kinds import Reach
from app.runtimes.tensorflow.error_mapping import map_error
from app.runtimes.tensorflow.execution.guarded_call import Call
from app.runtimes.tensorflow.execution.signature_function import SignatureFunction
from app.runtimes.tensorflow.execution.variant import Variant, VariantNotPossible
from app.runtimes.tensorflow.variants.unusual_values import Example, examples_of, in_batches, ordinary_inputs, place

logger = logging.getLogger(__name__)

#: Timed calls of each variant: the least, the most, and seconds after which none is added. Chosen.
LEAST_ROUNDS = 3
_MOST_ROUNDS = 25
_ROUNDS_S = 0.05

#: One call is enough if plain's takes this many times as long, or as short, and the longer one longer than all rounds
#: should: it might take minutes. A short call may be slow by chance, so it is repeated. Chosen.
_FAR = 2.0


class ValuesRejected(VariantNotPossible):
    """Plain rejects all example values: there is nothing to compare a variant with."""


class Trial:
    """The answers and times of plain, for ordinary inputs and, when a variant needs them, for unusual values.

    Args:
        inputs: ordinary inputs of `rows` rows; of one call, with `rows` 1, if the signature shares no calls.
        budget: a call begins only if it is expected to end in time.
        rejected: the examples that plain rejected in earlier trials of this signature; it grows.

    Raises:
        InvalidRequest: plain rejects the inputs.
        VariantNotPossible: plain's answers to equal calls differ.
        ServingError: plain failed.
        NoTimeLeft: there is no time for it.
    """

    def __init__(
        self,
        function: SignatureFunction,
        inputs: Mapping[str, Array],
        rows: int,
        budget: TimeBudget,
        rejected: set[str],
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.inputs = inputs
        self._function = function
        self._rows = rows
        self._budget = budget
        self._clock = clock
        self._rejected = rejected
        self._plain = function.prepare(function.plain, inputs)
        self._agree = partial(agree, tolerances=tolerances_of(function.signature))
        self._proofs: dict[Reach, list[_Proof]] = {}

        self.plain_s = 0.0
        self._expected = self._run_plain(inputs)
        begin_s = clock()
        again = _run(self._plain, inputs)
        self.plain_s = clock() - begin_s
        if not self._agree(self._expected, again):
            raise VariantNotPossible("its answers to equal calls differ")

    def check(self, variant: Variant) -> None:
        """Raises VariantNotPossible unless it answers ordinary inputs as plain does. XLA compiles it in this call."""
        if not self._agree(self._expected, self._function.prepare(variant.graph, self.inputs)(self.inputs)):
            raise VariantNotPossible("its answers differ from plain's")

    @property
    def bytes(self) -> int:
        """The bytes of the inputs and one answer."""
        return sum(array.nbytes for array in (*self.inputs.values(), *self._expected.values()))

    def reach(self, variant: Variant) -> Reach:
        """The reach within which the variant answers as plain does. A reach without time to try it is not proven.

        Raises:
            VariantNotPossible: it answers differently within Reach.ORDINARY.
            NoTimeLeft: there is not even time for the unusual values within Reach.ORDINARY.
        """
        call = self._function.prepare(variant.graph, self.inputs)
        proven: Reach | None = None
        for reach in Reach:
            # 1. No values that may keep the model busy for hours or take all memory, and none without time.
            found = examples_of(self._function.signature, self.inputs, self._function.steering)
            examples = [each for each in found if each.reach is reach]
            calls = len(in_batches(self._function.signature, examples, self._rows))
            if (reach > Reach.ORDINARY and self._function.steering) or not self._budget.allows(
                2 * calls * self.plain_s
            ):
                break

            # 2. The first difference ends the loop.
            differences = (
                proof.differing(self._gated(call), self._run_plain) for proof in self._prove(reach, examples)
            )
            differing = next(filter(None, differences), "")
            if differing and reach is Reach.ORDINARY:
                raise VariantNotPossible(f"its answers differ from plain's for {differing}")
            if differing:
                name = self._function.signature.name
                logger.debug("Signature %r: %s is not used for values as in: %s", name, variant.name, differing)
                break
            proven = reach
        if proven is None:
            raise NoTimeLeft("there is no time left to prove it")
        return proven

    def speed_up(self, variant: Variant) -> float:
        """The speed of the variant in multiples of plain's, if each call looks for NaN first."""
        call = self._function.prepare_variant(replace(variant, reach=Reach.FINITE), self.inputs)
        return speed_up(
            lambda: self._plain(self.inputs),
            lambda: call(self.inputs),
            self._clock,
            budget=self._budget,
            plain_s=self.plain_s,
        )

    def _run_plain(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return _run(self._gated(self._plain), inputs)

    def _gated(self, call: Call) -> Call:
        def gated(inputs: Mapping[str, Array]) -> dict[str, Array]:
            if not self._budget.allows(self.plain_s):
                raise NoTimeLeft("there is no time left to try it")
            return call(inputs)

        return gated

    def _prove(self, reach: Reach, examples: Sequence[Example]) -> list[_Proof]:
        """The answers of plain to the examples; kept, because all variants are compared with them."""
        if reach not in self._proofs:
            accepted = [each for each in examples if str(each) not in self._rejected]
            batches = in_batches(self._function.signature, accepted, self._rows)
            known = [[each] for each in examples if str(each) in self._rejected]
            self._proofs[reach] = [proof for batch in (*batches, *known) for proof in self._answers(batch)]
        return self._proofs[reach]

    def _answers(self, examples: list[Example]) -> list[_Proof]:
        inputs = place(examples, self.inputs, self._function.signature)
        try:
            return [_Proof(examples, inputs, self._run_plain(inputs), self._rows, self._function.signature)]
        except ServingError as error:
            if len(examples) > 1:
                return [proof for each in examples for proof in self._answers([each])]
            if not isinstance(error, InvalidRequest):
                logger.debug("Signature %r is not tried with %s: %s", self._function.signature.name, examples[0], error)
                return []
            self._rejected.add(str(examples[0]))
            return [_Proof(examples, inputs, None, self._rows, self._function.signature)]


@dataclass(slots=True, eq=False, repr=False)
class _Proof:
    """A batch of examples and plain's answer to it; None if plain rejects it."""

    examples: Sequence[Example]
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array] | None
    rows: int
    signature: ModelSignature
    moved: Mapping[str, Array] | None = None

    def differing(self, call: Call, plain: Call) -> str:
        """The first example that the call answers otherwise, or accepts although plain rejects it; empty if none."""
        try:
            actual = _run(call, self.inputs)
        except InvalidRequest:
            return str(self.examples[0]) if self.expected is not None else ""
        if self.expected is None:
            return str(self.examples[0])
        tolerances = tolerances_of(self.signature)
        by_rows = all(array.shape[:1] == (self.rows,) for array in (*self.expected.values(), *actual.values()))
        parts: Sequence[Any] = [slice(row, row + 1) for row in range(self.rows)] if by_rows else [...]
        for row, part in enumerate(parts):
            want, got = _part(self.expected, part), _part(actual, part)
            if not agree(want, got, tolerances) and not agree(want, got, tolerances, _part(self._moved(plain), part)):
                return str(self.examples[min(row, len(self.examples) - 1)])
        return ""

    def _moved(self, plain: Call) -> Mapping[str, Array]:
        if self.moved is None:
            self.moved = _run(plain, moved_inputs(self.inputs, np.random.default_rng(SEED)))
        return self.moved


def try_signature(
    function: SignatureFunction,
    rows: int,
    budget: TimeBudget,
    rejected: set[str],
    clock: Callable[[], float] = time.perf_counter,
) -> Trial:
    """The trial of ordinary inputs that plain accepts: random values, else zeros, else values by hints.

    Raises:
        ValuesRejected: plain rejects all.
        VariantNotPossible: its answers to equal calls differ.
        ServingError: plain failed.
        NoTimeLeft: there is no time for it.
    """
    for inputs in ordinary_inputs(function, rows):
        try:
            return Trial(function, inputs, rows, budget, rejected, clock=clock)
        except InvalidRequest as rejection:
            logger.debug("Signature %r rejects example values: %s", function.signature.name, rejection)
    raise ValuesRejected("it rejects the example values")


def check_room(needed: float, most_bytes: float) -> None:
    """Raises TooMuchMemory if a trial would take too much."""
    if needed > most_bytes:
        raise TooMuchMemory(f"it would take {needed / 2**20:.0f} MB to try it")


def _run(call: Call, inputs: Mapping[str, Array]) -> dict[str, Array]:
    try:
        return call(inputs)
    except OverBudget:
        raise
    except Exception as error:
        raise map_error(error) from error


def _part(answers: Mapping[str, Array], place: Any) -> dict[str, Array]:
    return {name: array[place] for name, array in answers.items()}


def speed_up(
    plain: Callable[[], Any],
    variant: Callable[[], Any],
    clock: Callable[[], float],
    *,
    budget: TimeBudget,
    plain_s: float | None = None,
) -> float:
    """The ratio of the medians of alternate calls of plain and of the variant. `plain_s`: one call of plain, if known.

    Raises NoTimeLeft if the budget ends before there are enough calls.
    """

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

    # 2. Else several calls, alternately, because a machine's speed drifts.
    plain_all_s: list[float] = []
    variant_all_s: list[float] = []
    end_s = clock() + _ROUNDS_S
    while len(plain_all_s) < LEAST_ROUNDS or (len(plain_all_s) < _MOST_ROUNDS and clock() < end_s):
        if not budget.allows(known_s):
            raise NoTimeLeft("there is no time left to measure it")
        plain_all_s.append(timed(plain))
        variant_all_s.append(timed(variant))
    return median(plain_all_s) / median(variant_all_s)
