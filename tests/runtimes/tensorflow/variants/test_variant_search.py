"""Which variant is chosen, decided on made-up times: a call's seconds pass on a made-up clock."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from math import inf
from typing import Any, cast

import numpy as np
import pytest

from app.core.errors import InvalidRequest
from app.core.inference import Array, ModelSignature, TensorSpec
from app.core.time_budget import TimeBudget
from app.core.values.value_hints import NO_HINTS
from app.core.values.value_kinds import Reach
from app.runtime import VariantChoice, VariantOptions
from app.runtimes.tensorflow.execution.variant import Variant, VariantNotPossible
from app.runtimes.tensorflow.variants.variant_search import VariantSearch

SIZES = (1, 2, 4)
FLOAT32 = np.dtype(np.float32)


@dataclass
class Graph:
    """Takes `seconds` for each row, and `compile_s` more at its first call; its answer is off by `error`."""

    seconds: float
    error: float = 0.0
    compile_s: float = 0.0
    drifts: bool = False
    rejects: bool = False
    calls: list[int] = field(default_factory=list)


class World:
    """A clock, and a signature 'f' (or several) with its plain graph and the variants that can be made of it."""

    def __init__(self, plain: Graph, *, batchable: bool = True, **variants: Graph | Exception) -> None:
        self.now = 0.0
        self.steering: frozenset[str] = frozenset()
        self.value_hints = NO_HINTS
        self.traced_s = 0.0
        self.most_bytes = inf
        self.plain = plain
        self.variants = variants
        shape = (None, 2) if batchable else (2,)
        spec = TensorSpec("x", FLOAT32, shape)
        self.signature = ModelSignature("f", {"x": spec}, {"y": spec})
        self.used: Mapping[int, Variant] = {}
        self.reports: list[tuple[int, int, str]] = []

    def prepare(self, graph: Any, inputs: Mapping[str, Array]) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
        return partial(self.run, graph)

    def prepare_variant(
        self, variant: Variant, inputs: Mapping[str, Array]
    ) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
        return self.prepare(variant.graph, inputs)

    def run(self, graph: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
        rows = len(inputs["x"]) if self.signature.batchable else 1
        graph.calls.append(rows)
        self.now += graph.seconds * rows + (graph.compile_s if len(graph.calls) == 1 else 0)
        if graph.rejects:
            raise ValueError("not these values")
        return {"y": inputs["x"] + graph.error + (len(graph.calls) if graph.drifts else 0)}

    def calls(self, variant: str) -> list[int]:
        """The rows of its calls."""
        graph = self.variants[variant]
        assert isinstance(graph, Graph)
        return graph.calls

    def use(self, variants: Mapping[int, Variant]) -> None:
        self.used = variants

    def make(self, name: str, inputs: Mapping[str, Array]) -> Variant:
        graph = self.variants.get(name, VariantNotPossible("there is none"))
        if isinstance(graph, Exception):
            raise graph
        if name == "xla":  # compiled for each shape
            graph = Graph(graph.seconds, graph.error, graph.compile_s)
        return Variant(name, cast(Any, graph))

    def search(self, **options: Any) -> VariantSearch:
        fake: Any = self
        return VariantSearch(
            {"f": fake},
            SIZES,
            VariantOptions("auto", **options),
            lambda *report: self.reports.append(report),
            clock=lambda: self.now,
            most_bytes=lambda: self.most_bytes,
            make_maker=lambda *_: fake,
        )

    def budget(self, seconds: float = 20.0) -> TimeBudget:
        return TimeBudget(seconds, lambda: self.now)

    def fastest(self, search_s: float = 20.0, **options: Any) -> dict[int, str]:
        choices = self.search(**options).choose_fastest(self.budget(search_s))
        chosen = {choice.batch_size: choice.variant for choice in choices}
        assert {size: variant.name for size, variant in self.used.items()} == {
            size: name for size, name in chosen.items() if name != "plain"
        }
        return chosen


def every(name: str) -> dict[int, str]:
    return dict.fromkeys(SIZES, name)


def test_the_fastest_is_used_and_its_gain_is_told() -> None:
    world = World(Graph(0.003), frozen=Graph(0.002), xla=Graph(0.001))
    search = world.search()
    choices = search.choose_fastest(world.budget())
    assert [(choice.batch_size, choice.variant) for choice in choices] == [(1, "xla"), (2, "xla"), (4, "xla")]
    assert [choice.speed_up for choice in choices] == pytest.approx([3, 3, 3])


def test_each_size_may_have_its_own() -> None:
    class QuickAlone(World):
        def make(self, name: str, inputs: Mapping[str, Array]) -> Variant:
            rows = len(inputs["x"])
            return Variant(name, cast(Any, Graph(0.002 if name == "frozen" else 0.0012 * rows)))

    assert QuickAlone(Graph(0.003)).fastest() == {1: "xla", 2: "frozen", 4: "frozen"}


def test_inline_is_tried_where_calls_are_so_short_that_it_matters() -> None:
    world = World(Graph(0.0004), frozen=Graph(0.0003), inline=Graph(0.0001))
    assert world.fastest() == {1: "inline", 2: "inline", 4: "frozen"}
    assert set(world.calls("inline")) == {1, 2}


@pytest.mark.parametrize(("seconds", "chosen"), [(0.00097, "plain"), (0.00094, "frozen")])
def test_a_small_gain_is_not_worth_it(seconds: float, chosen: str) -> None:
    assert World(Graph(0.001), frozen=Graph(seconds)).fastest() == every(chosen)


@pytest.mark.parametrize(
    "broken",
    [Graph(0.001, error=1.0), Graph(0.001, error=0.001), VariantNotPossible("no"), RuntimeError("TensorFlow says no")],
)
def test_what_disagrees_or_fails_is_not_used(broken: Graph | Exception) -> None:
    assert World(Graph(0.003), frozen=broken, xla=Graph(0.002)).fastest() == every("xla")


def test_what_disagrees_at_one_size_is_not_used_at_another() -> None:
    class WrongWhenLarge(World):
        def run(self, graph: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
            answer = super().run(graph, inputs)
            return {"y": answer["y"] + 1} if graph is self.variants["frozen"] and len(inputs["x"]) == 4 else answer

    assert WrongWhenLarge(Graph(0.003), frozen=Graph(0.001)).fastest() == every("plain")


def test_a_signature_whose_answers_drift_stays_plain() -> None:
    assert World(Graph(0.003, drifts=True), frozen=Graph(0.001), xla=Graph(0.001)).fastest() == every("plain")


def test_a_signature_that_rejects_every_example_stays_plain() -> None:
    assert World(Graph(0.003, rejects=True), frozen=Graph(0.001)).fastest() == every("plain")


def test_a_failure_of_plain_is_no_failure_of_the_search() -> None:
    class Broken(World):
        def run(self, graph: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
            raise RuntimeError("the device is gone")

    assert Broken(Graph(0.003), frozen=Graph(0.001)).fastest() == every("plain")


@pytest.mark.parametrize("seconds", [0.21, 0.4])
def test_a_variant_that_is_less_than_half_as_fast_at_one_size_is_not_tried_at_the_others(seconds: float) -> None:
    world = World(Graph(0.1), frozen=Graph(seconds))
    assert world.fastest() == every("plain")
    assert world.calls("frozen") == [1, 1]


def test_a_variant_that_is_a_little_slower_at_one_size_is_tried_at_the_others() -> None:
    world = World(Graph(0.1), frozen=Graph(0.19))
    assert world.fastest() == every("plain")
    assert set(world.calls("frozen")) == {1, 2, 4}


def test_a_size_without_time_for_the_best_variant_gets_another_one() -> None:
    world = World(Graph(0.01), frozen=Graph(0.007), xla=Graph(0.002, compile_s=2.0))
    assert world.fastest(search_s=6.5) == {1: "xla", 2: "frozen", 4: "xla"}


def test_large_calls_are_not_left_for_the_end() -> None:
    world = World(Graph(0.01), frozen=Graph(0.009), xla=Graph(0.002, compile_s=2.0))
    world.fastest()
    assert [int(text.split()[-2]) for *_, text in world.reports] == [1, 1, 1, 4, 4, 4, 2, 2, 2]


def test_no_time_no_search() -> None:
    world = World(Graph(0.001), frozen=Graph(0.0001))
    assert world.fastest(search_s=0.0) == every("plain")
    assert world.plain.calls == []


def test_sizes_that_would_take_too_long_to_measure_stay_plain() -> None:
    world = World(Graph(1.0), frozen=Graph(0.5))
    assert world.fastest(search_s=25.0) == {1: "frozen", 2: "plain", 4: "plain"}
    assert world.now < 25.0 + 4 * 3  # a call that began is not interrupted


def test_xla_does_not_begin_when_half_of_the_time_is_gone() -> None:
    slow_to_compile = Graph(0.0001, compile_s=6.0)
    assert World(Graph(0.001), xla=slow_to_compile).fastest(search_s=10.0) == {1: "xla", 2: "plain", 4: "plain"}


def test_xla_goes_on_while_there_is_as_much_time_as_it_took_last() -> None:
    world = World(Graph(0.001), xla=Graph(0.0001, compile_s=3.0))
    assert world.fastest(search_s=10.0) == every("xla")
    assert world.now > 9.0


def test_a_signature_that_is_not_batchable_is_measured_once() -> None:
    world = World(Graph(0.003), frozen=Graph(0.001), batchable=False)
    assert world.fastest() == {1: "frozen"}
    assert [report[:2] for report in world.reports] == [(1, 3), (2, 3), (3, 3)]


class FewRows(World):
    """Takes two rows in a call at most."""

    def run(self, graph: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
        if len(inputs["x"]) > 2:
            raise InvalidRequest("at most two rows")
        return super().run(graph, inputs)


def test_sizes_that_the_model_does_not_take_say_nothing_of_its_variants() -> None:
    world = FewRows(Graph(0.003), frozen=Graph(0.002), xla=Graph(0.001))
    assert world.fastest() == {1: "xla", 2: "xla", 4: "plain"}


def test_variants_are_adopted_at_the_sizes_that_the_model_takes() -> None:
    world = FewRows(Graph(0.003), frozen=Graph(0.001))
    wanted = [VariantChoice("f", size, "frozen", 1.0) for size in (4, 2, 1)]
    choices = world.search().adopt(wanted, world.budget())
    assert {choice.batch_size: choice.variant for choice in choices} == {1: "frozen", 2: "frozen", 4: "plain"}


def test_progress_says_what_is_tried() -> None:
    world = World(Graph(0.003), frozen=Graph(0.001))
    world.fastest()
    assert world.reports == [
        (1, 9, "trying frozen for signature 'f' with 1 row"),
        (2, 9, "trying inline for signature 'f' with 1 row"),
        (3, 9, "trying xla for signature 'f' with 1 row"),
        (4, 9, "trying frozen for signature 'f' with 4 rows"),
        (5, 9, "trying inline for signature 'f' with 4 rows"),
        (6, 9, "trying frozen for signature 'f' with 2 rows"),
        (7, 9, "trying inline for signature 'f' with 2 rows"),
    ]


def test_adopting_measures_nothing_but_checks_every_answer(caplog: pytest.LogCaptureFixture) -> None:
    world = World(Graph(0.003), frozen=Graph(0.001), xla=Graph(0.001, error=1.0))
    wanted = [
        VariantChoice("f", size, name, speed_up, Reach.ANY)
        for size, name, speed_up in ((1, "frozen", 1.5), (2, "plain", 1.0), (4, "xla", 2.0))
    ]
    with caplog.at_level(logging.INFO):
        choices = world.search().adopt(wanted)
    assert [(choice.variant, choice.speed_up) for choice in choices] == [("frozen", 1.5), ("plain", 1), ("plain", 1)]
    assert world.calls("frozen") == [1]
    assert caplog.messages == ["Signature 'f' does not run xla at batch size 4: its answers differ from plain's"]


def test_what_cannot_be_adopted_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = World(Graph(0.003), frozen=Graph(0.001, error=1.0))
    search = world.search()
    choices = search.adopt([VariantChoice(*sized, "frozen", 1.0) for sized in search.sized_signatures()])
    assert {choice.variant for choice in choices} == {"plain"}
    assert len(caplog.messages) == 1


def test_what_there_is_no_time_to_prove_is_used_within_what_was_proven() -> None:
    """Plain takes 1 s a row: 10 s to measure, then 8 s for four kinds of ordinary values, and for the others more."""
    for search_s, reach in ((18.0, Reach.ORDINARY), (25.0, Reach.FINITE), (60.0, Reach.ANY)):
        world = World(Graph(1.0), frozen=Graph(0.9))
        world.search().choose_fastest(world.budget(search_s))
        assert world.used[1].reach is reach


@pytest.mark.parametrize(("wrong_from", "chosen"), [(1e3, None), (1e20, Reach.ORDINARY), (np.inf, Reach.FINITE)])
def test_a_variant_is_used_as_far_as_it_agrees(wrong_from: float, chosen: Reach | None) -> None:
    class WrongFrom(World):
        def run(self, graph: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
            answer = super().run(graph, inputs)["y"]
            beyond = ~(np.abs(answer) < wrong_from)
            return {"y": np.where(beyond & (graph is not self.plain), np.float32(7), answer)}

    world = WrongFrom(Graph(0.003), frozen=Graph(0.001))
    world.search().choose_fastest(world.budget())
    assert {variant.reach for variant in world.used.values()} == ({chosen} if chosen is not None else set())


def test_a_variant_that_accepts_what_plain_rejects_is_not_used() -> None:
    class RejectsNegatives(World):
        def run(self, graph: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
            if graph is self.plain and (inputs["x"] < 0).any():
                raise ValueError("negative")
            return super().run(graph, inputs)

    assert RejectsNegatives(Graph(0.003), frozen=Graph(0.001)).fastest() == every("plain")


def test_what_cannot_be_interrupted_begins_only_if_it_is_expected_to_end_in_time() -> None:
    """A graph that took 2 s to trace takes 24 s to freeze."""
    for search_s, chosen in ((20.0, "plain"), (60.0, "frozen")):
        world = World(Graph(0.003), frozen=Graph(0.001))
        world.traced_s = 2.0
        assert world.fastest(search_s) == every(chosen)
        assert world.calls("frozen") or chosen == "plain"


def test_a_size_whose_calls_would_not_end_in_time_is_not_even_called() -> None:
    world = World(Graph(3.0), frozen=Graph(2.9))
    assert world.fastest(search_s=12.0) == every("plain")
    assert set(world.plain.calls) == {1}


def test_a_trial_does_not_take_more_than_its_share_of_memory() -> None:
    """A row takes 16 bytes: 2 numbers in and 2 out. A trial holds 12 of them; here it may take 12 times three rows."""
    world = World(Graph(0.003), frozen=Graph(0.001))
    world.most_bytes = 12 * 16 * 3.0
    assert world.fastest() == {1: "frozen", 2: "frozen", 4: "plain"}
    assert 4 not in world.plain.calls


def test_one_row_is_measured_before_larger_sizes_are_tried() -> None:
    world = World(Graph(0.003), frozen=Graph(0.001))
    world.most_bytes = 25.0
    search = world.search()
    search._sizes = (4,)
    assert {choice.variant for choice in search.choose_fastest(world.budget())} == {"plain"}
    assert set(world.plain.calls) == {1}


def test_every_call_waits_until_the_budget_lets_it_begin() -> None:
    """The gate is where background work waits for an idle moment."""
    world, asked = World(Graph(0.003), frozen=Graph(0.001)), []

    def gate() -> bool:
        asked.append(len(world.plain.calls))
        return len(asked) < 30

    budget = TimeBudget(20.0, lambda: world.now, gate)
    world.search().choose_fastest(budget)
    assert budget.cancelled
    assert len(world.plain.calls) <= asked[-1] + 2
    assert max(later - before for before, later in pairwise(asked)) <= 2
