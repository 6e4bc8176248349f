"""How a variant is compared with plain, on made-up graphs whose seconds pass on a made-up clock."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np
import pytest

from app.core.errors import InferenceFailed
from app.core.inference import Array, ModelSignature, TensorSpec
from app.core.time_budget import NoTimeLeft, TimeBudget
from app.core.values.value_hints import NO_HINTS, Range, ValueHint, ValueHints
from app.core.values.value_kinds import Reach
from app.runtimes.tensorflow.execution.variant import Variant, VariantNotPossible
from app.runtimes.tensorflow.variants.trial import Trial, speed_up, try_signature
from tests.support.garbage import no_collection

FLOAT32 = np.dtype(np.float32)
TINY = np.finfo(np.float32).tiny

#: The examples of an input of two floating-point numbers a row: so many of each reach.
ORDINARY, FINITE, ANY = 4, 1, 6

Body = Callable[[Array], Array]


@dataclass
class Graph:
    """Answers `y`, computed from `x` by `body`, in `seconds`; remembers the `x` of its calls."""

    body: Body
    seconds: float = 1.0
    calls: list[Array] = field(default_factory=list)


class Scene:
    """A signature of `x`, two numbers a row, whose plain graph is `body`."""

    def __init__(self, body: Body = lambda x: x, seconds: float = 1.0, *, batchable: bool = True) -> None:
        self.now = 0.0
        self.plain = Graph(body, seconds)
        self.steering: frozenset[str] = frozenset()
        self.reaches: list[Reach] = []
        self.rejected: set[str] = set()
        self.value_hints: ValueHints = NO_HINTS
        spec = TensorSpec("x", FLOAT32, (None, 2) if batchable else (2,))
        self.signature = ModelSignature("f", {"x": spec}, {"y": spec})

    def prepare(self, graph: Graph, _: Mapping[str, Array]) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            self.now += graph.seconds
            graph.calls.append(inputs["x"])
            with np.errstate(all="ignore"):
                return {"y": np.asarray(graph.body(inputs["x"]), FLOAT32)}

        return run

    def prepare_variant(self, variant: Variant, inputs: Mapping[str, Array]) -> Any:
        self.reaches.append(variant.reach)
        graph: Any = variant.graph
        return self.prepare(graph, inputs)

    def trial(self, rows: int = 4, seconds: float = 1e6) -> Trial:
        budget = TimeBudget(seconds, self.clock)
        return try_signature(self, rows, budget, self.rejected, self.clock)  # type: ignore[arg-type]  # a fake function

    def clock(self) -> float:
        return self.now


def variant(body: Body, seconds: float = 1.0) -> Variant:
    return Variant("frozen", cast(Any, Graph(body, seconds)))


def calls_of(variant: Variant) -> list[Array]:
    return cast(Graph, variant.graph).calls


def rejects(bad: Callable[[Array], Array], error: type[Exception] = ValueError) -> Body:
    def body(x: Array) -> Array:
        if bad(x).any():
            raise error("not these")
        return x

    return body


# --- ordinary inputs ---


def test_plain_is_run_twice_and_its_second_call_is_timed() -> None:
    scene = Scene()
    scene.plain.seconds = 8.0  # traced, and what else a first call does

    def quicker(x: Array) -> Array:
        scene.plain.seconds = 2.0
        return x

    scene.plain.body = quicker
    trial = scene.trial(rows=4)
    assert (trial.plain_s, [call.shape for call in scene.plain.calls]) == (2.0, [(4, 2), (4, 2)])
    assert trial.bytes == 2 * 4 * 2 * 4  # inputs and answer: 4 rows of 2 numbers of 4 bytes


def test_a_variant_agrees_if_it_answers_the_same() -> None:
    trial = Scene().trial()
    trial.check(variant(lambda x: x * (1 + 1e-6)))
    with pytest.raises(VariantNotPossible):
        trial.check(variant(lambda x: x * (1 + 1e-2)))


def test_a_signature_whose_answers_to_equal_calls_differ_has_no_trial() -> None:
    scene = Scene()
    scene.plain.body = lambda x: x + len(scene.plain.calls)
    with pytest.raises(VariantNotPossible, match="answers to equal calls differ"):
        scene.trial()


def test_zeros_are_tried_where_random_values_are_rejected() -> None:
    assert not Scene(rejects(lambda x: x != 0)).trial().inputs["x"].any()
    assert Scene().trial().inputs["x"].any()
    with pytest.raises(VariantNotPossible, match="rejects the example values"):
        Scene(rejects(lambda x: x < np.inf)).trial()


def test_values_of_hints_are_tried_where_random_ones_and_zeros_are_rejected() -> None:
    scene = Scene(rejects(lambda x: x < 5))
    scene.value_hints = {"x": ValueHint((Range(1, 2), Range(6, 7)), takes_zero=False)}
    inputs = scene.trial().inputs["x"]
    assert (inputs.min() >= 6, inputs.max() <= 7) == (True, True)
    assert len(np.unique(inputs)) > 1


def test_a_failure_of_plain_is_told_as_it_is() -> None:
    scene = Scene(rejects(lambda x: x < np.inf, RuntimeError))
    with pytest.raises(InferenceFailed, match="not these"):
        scene.trial()
    assert len(scene.plain.calls) == 1


def test_without_time_plain_is_not_even_called() -> None:
    scene = Scene()
    with pytest.raises(NoTimeLeft):
        scene.trial(seconds=0.0)
    assert scene.plain.calls == []


# --- unusual values ---


def test_a_variant_that_is_as_plain_may_have_any_values() -> None:
    scene, same = Scene(), variant(lambda x: x)
    assert scene.trial(rows=4).reach(same) is Reach.ANY
    batches = 1 + 1 + 2  # of 4 ordinary examples, 1 finite one and 6 others
    assert len(calls_of(same)) == batches
    assert len(scene.plain.calls) == 2 + batches


def test_a_trial_and_the_answers_that_it_keeps_are_freed_without_a_collection() -> None:
    with no_collection():
        trial = Scene().trial(rows=4)
        trial.reach(variant(lambda x: x))
        kept = weakref.ref(trial)
        del trial
        assert kept() is None


@pytest.mark.parametrize(
    ("wrong", "reach"),
    [
        (lambda x: np.isfinite(x) & (np.abs(x) > 1e5), Reach.ORDINARY),
        (np.isnan, Reach.FINITE),
        (np.isinf, Reach.FINITE),
    ],
)
def test_a_variant_is_used_for_values_that_it_answers_as_plain(wrong: Callable[[Array], Array], reach: Reach) -> None:
    other = variant(lambda x: np.where(wrong(x), np.float32(7), x))
    assert Scene().trial().reach(other) is reach


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 9])
def test_the_values_that_a_variant_answers_differently_are_named(rows: int) -> None:
    other = variant(lambda x: np.where(np.abs(x) > 2, np.float32(7), x))
    with pytest.raises(VariantNotPossible, match="differ from plain's for large in x"):
        Scene().trial(rows).reach(other)


def test_a_difference_beside_examples_is_named_by_the_last_of_them() -> None:
    def last_row_sees_others(x: Array) -> Array:
        y = x.copy()
        y[-1] += np.abs(x).max() > 2
        return y

    with pytest.raises(VariantNotPossible, match="differ from plain's for denormal in x"):
        Scene().trial(rows=9).reach(variant(last_row_sees_others))


def test_small_values_are_not_compared_with_large_ones_of_other_rows() -> None:
    """Beside values of ten thousand a hundredth would be rounding."""
    with pytest.raises(VariantNotPossible, match="for zero in x"):
        Scene().trial(rows=4).reach(variant(lambda x: x + np.float32(0.01)))


def test_an_answer_that_is_not_by_rows_is_compared_as_a_whole() -> None:
    scene = Scene(lambda x: np.float32(np.nansum(np.tanh(x))))
    assert scene.trial(rows=4).reach(variant(scene.plain.body)) is Reach.ANY
    with pytest.raises(VariantNotPossible, match="for zero in x"):
        scene.trial(rows=4).reach(variant(lambda x: np.float32(np.nansum(np.tanh(x)) + 1)))


def test_a_variant_whose_answers_have_no_rows_is_not_used_where_plains_have() -> None:
    with pytest.raises(VariantNotPossible):
        Scene().trial(rows=4).reach(variant(lambda _: np.float32(1)))


def test_a_signature_that_is_not_batchable_is_tried_with_one_example_a_call() -> None:
    scene, same = Scene(batchable=False), variant(lambda x: x)
    assert scene.trial(rows=1).reach(same) is Reach.ANY
    assert len(calls_of(same)) == ORDINARY + FINITE + ANY
    with pytest.raises(VariantNotPossible, match="for large in x"):
        scene.trial(rows=1).reach(variant(lambda x: np.where(np.abs(x) > 2, np.float32(7), x)))


def test_numbers_too_small_to_be_normal_may_count_as_zero() -> None:
    """Plain's answer moves much, too, if they do."""
    scene = Scene(lambda x: x / TINY)
    flushes = variant(lambda x: np.where(np.abs(x) < TINY, 0, x) / TINY)
    trial = scene.trial(rows=4)
    assert trial.reach(flushes) is Reach.ANY
    calls = len(scene.plain.calls)
    assert trial.reach(flushes) is Reach.ANY
    assert len(scene.plain.calls) == calls, "what plain answers is kept, to moved inputs, too"
    with pytest.raises(VariantNotPossible, match="for denormal in x"):
        trial.reach(variant(lambda x: np.where((x != 0) & (np.abs(x) < TINY), 99, x / TINY)))


def test_large_values_are_not_tried_in_inputs_that_decide_how_long_a_call_takes() -> None:
    scene, same = Scene(), variant(lambda x: x)
    scene.steering = frozenset({"other"})
    assert scene.trial(rows=4).reach(same) is Reach.ORDINARY
    assert len(calls_of(same)) == 1


# --- what plain rejects ---


def test_what_plain_rejects_a_variant_must_reject() -> None:
    scene = Scene(rejects(np.isnan))
    assert scene.trial().reach(variant(scene.plain.body)) is Reach.ANY
    assert scene.rejected == {"NaN in x", "single NaN in x"}
    assert scene.trial().reach(variant(lambda x: x)) is Reach.FINITE
    assert scene.trial().reach(variant(rejects(lambda x: ~np.isfinite(x)))) is Reach.FINITE
    with pytest.raises(VariantNotPossible, match="for large in x"):
        scene.trial(rows=1).reach(variant(rejects(lambda x: np.abs(x) > 2)))


def test_what_plain_rejected_once_stands_alone_in_later_trials() -> None:
    scene = Scene(rejects(np.isnan))
    for calls_of_any in (1 + ANY, 1 + 2):  # one batch and each alone; then a batch without those that were rejected
        scene.plain.calls.clear()
        scene.trial(rows=8).reach(variant(scene.plain.body))
        assert len(scene.plain.calls) == 2 + 1 + 1 + calls_of_any


def test_what_plain_fails_at_is_not_tried() -> None:
    scene = Scene(rejects(np.isnan, RuntimeError))
    assert scene.trial().reach(variant(lambda x: x)) is Reach.ANY
    assert scene.rejected == set()
    with pytest.raises(InferenceFailed):
        scene.trial().reach(variant(rejects(np.isinf, RuntimeError)))


# --- time ---


@pytest.mark.parametrize(("rows", "needed_s"), [(1, 32.0), (3, 16.0), (4, 8.0), (9, 8.0)])
def test_values_are_tried_only_if_there_is_time_for_all_calls(rows: int, needed_s: float) -> None:
    """Plain takes four seconds, and so the trial eight before; each example is a call of plain and of the variant."""
    too_short, enough = Scene(seconds=4.0), Scene(seconds=4.0)
    trial, same = too_short.trial(rows, 8.0 + needed_s), variant(lambda x: x, seconds=4.0)
    with pytest.raises(NoTimeLeft, match="no time left to prove it"):
        trial.reach(same)
    assert (len(too_short.plain.calls), len(calls_of(same))) == (2, 0)
    assert enough.trial(rows, 8.5 + needed_s).reach(same) is Reach.ORDINARY


def test_a_first_call_begins_if_there_is_any_time() -> None:
    assert Scene(seconds=0.1).trial(seconds=0.5).plain_s == pytest.approx(0.1)


def test_a_call_of_a_variant_begins_only_if_there_is_time() -> None:
    trial, slow = Scene().trial(rows=1, seconds=15.0), variant(lambda x: x, seconds=5.0)
    with pytest.raises(NoTimeLeft, match="no time left to try it"):
        trial.reach(slow)
    assert len(calls_of(slow)) == 2  # plain until 6 s; a third call would begin at 16 s


# --- speed ---


class Race:
    """Two forms whose calls take the seconds given, the last ones for ever; `order` has a letter for each call."""

    def __init__(self, plain: list[float], variant: list[float]) -> None:
        self.now = 0.0
        self.order = ""
        self._seconds = {"p": plain, "v": variant}

    def speed_up(self, budget_s: float = 1e6, plain_s: float | None = None) -> float:
        budget = TimeBudget(budget_s, lambda: self.now)
        plain, variant = (partial(self._call, form) for form in "pv")
        return speed_up(plain, variant, lambda: self.now, budget=budget, plain_s=plain_s)

    def _call(self, form: str) -> None:
        self.order += form
        seconds = self._seconds[form]
        self.now += seconds.pop(0) if len(seconds) > 1 else seconds[0]


@pytest.mark.parametrize(("plain_s", "variant_s"), [(2.0, 0.5), (0.5, 2.0), (0.5, 0.125), (1.0, 0.25)])
def test_one_call_tells_enough_of_forms_that_are_far_apart(plain_s: float, variant_s: float) -> None:
    race = Race([plain_s], [variant_s])
    assert (race.speed_up(), race.order) == (plain_s / variant_s, "pv")
    race = Race([9.0], [variant_s])
    assert (race.speed_up(plain_s=plain_s), race.order) == (plain_s / variant_s, "v")


@pytest.mark.parametrize(
    ("plain_s", "variant_s", "rounds"),
    [
        (1.0, 0.75, 3),  # not far apart: as few as make a median
        (0.25, 0.125, 3),  # just twice
        (0.05, 2**-6, 3),  # far apart, and just as long as all rounds may take
        (2**-5, 2**-9, 3),
        (2**-8, 2**-8, 7),  # 50 ms of rounds
        (2**-16, 2**-16, 25),
    ],
)
def test_otherwise_calls_alternate_until_there_are_enough(plain_s: float, variant_s: float, rounds: int) -> None:
    race = Race([plain_s], [variant_s])
    assert race.speed_up(plain_s=plain_s) == pytest.approx(plain_s / variant_s)
    assert race.order == "v" + rounds * "pv"


def test_medians_are_compared() -> None:
    assert Race([1.0, 9.0, 1.0, 0.5], [0.75, 0.75, 0.25, 8.0]).speed_up() == 1.0 / 0.75
    assert Race([1.0, 1.0, 2.0, 9.0], [1.0, 4.0, 1.0, 0.5]).speed_up() == 2.0


def test_a_round_begins_only_if_there_is_time() -> None:
    race = Race([1.0], [1.0])
    with pytest.raises(NoTimeLeft, match="no time left to measure it"):
        race.speed_up(budget_s=6.0, plain_s=1.0)
    assert race.order == "vpvpv"
    assert Race([1.0], [1.0]).speed_up(budget_s=6.5, plain_s=1.0) == 1.0


def test_a_trial_compares_with_the_time_that_it_knows_and_lets_each_call_look_for_nan() -> None:
    scene = Scene(seconds=3.0)
    trial = scene.trial()
    assert trial.speed_up(variant(lambda x: x, seconds=1.0)) == 3.0
    assert len(scene.plain.calls) == 2
    assert scene.reaches == [Reach.FINITE]
    scene.now = 999_999.0
    with pytest.raises(NoTimeLeft):
        trial.speed_up(variant(lambda x: x, seconds=2.0))
