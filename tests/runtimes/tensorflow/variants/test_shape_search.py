"""Which shapes are compiled, decided on made-up times: a call's seconds pass on a made-up clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import inf
from typing import Any, cast

import numpy as np
import pytest

from app.core.inference import Array, ModelSignature, TensorSpec
from app.core.time_budget import TimeBudget
from app.runtime import ShapeTrial
from app.runtimes.tensorflow.execution.variant import Variant, VariantNotPossible
from app.runtimes.tensorflow.variants.shape_search import ShapeSearch

SPEC = TensorSpec("x", np.dtype(np.float32), (None, None))


class World:
    """Plain takes a second for each element, what is compiled `compiled_s`; compiling takes `compile_s`."""

    def __init__(self, compiled_s: float = 0.1, compile_s: float = 1.0, error: float = 0.0, longest: int = 99) -> None:
        self.now = 0.0
        self.steering: frozenset[str] = frozenset()
        self.traced_s = 0.0
        self.most_bytes = inf
        self.signature = ModelSignature("f", {"x": SPEC}, {"y": SPEC})
        self.plain = object()
        self.compiled_s, self.compile_s, self.error, self.longest = compiled_s, compile_s, error, longest
        self.made: list[tuple[int, ...]] = []
        self.used: list[tuple[int, ...]] | None = None

    def prepare(self, graph: Any, inputs: Mapping[str, Array]) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
        return partial(self.run, graph)

    def prepare_variant(
        self, variant: Variant, inputs: Mapping[str, Array]
    ) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
        return self.prepare(variant.graph, inputs)

    def run(self, graph: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
        x = inputs["x"]
        if x.shape[1] > self.longest:
            raise ValueError("too long")
        self.now += x.size * (1.0 if graph is self.plain else self.compiled_s)
        return {"y": x + (0.0 if graph is self.plain else self.error)}

    def __call__(self, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        return self.run(self.plain, inputs)

    def compile(self, inputs: Mapping[str, Array]) -> Variant:
        if self.compiled_s < 0:
            raise VariantNotPossible("XLA has no strings")
        self.now += self.compile_s
        self.made.append(inputs["x"].shape)
        return Variant("xla", cast(Any, object()), (inputs["x"].shape,))

    def use_compiled(self, variants: Iterable[Variant]) -> None:
        self.used = [variant.shapes[0] for variant in variants if variant.shapes]

    def search(
        self, *shapes: tuple[int, int], first_s: float = 0.0, end_s: float = 1e6, measured: bool = True
    ) -> list[float]:
        trials = (ShapeTrial(values(rows, size), values(rows, size - 1)) for rows, size in shapes)
        clock = lambda: self.now  # noqa: E731 - a clock of one line
        fake: Any = self
        search = ShapeSearch(fake, fake, TimeBudget(end_s, clock), first_s, measured, clock, lambda: self.most_bytes)
        return search.use_fastest(trials)


def values(rows: int, size: int) -> dict[str, Array]:
    return {"x": np.ones((rows, size), np.float32)}


def test_what_is_faster_is_used_at_its_shapes() -> None:
    world = World()
    assert world.search((1, 4), (2, 8)) == pytest.approx([7.5, 8.75])
    assert world.used == [(1, 4), (2, 8)]


def test_it_has_to_beat_the_shorter_inputs_that_are_padded() -> None:
    """Of 2 elements the shorter ones take half the time; of 20 nearly all."""
    world = World(compiled_s=0.8)
    assert world.search((1, 2), (1, 20)) == [0.0, pytest.approx(19 / 16)]
    assert world.used == [(1, 20)]


def test_no_more_is_begun_than_there_is_time_for() -> None:
    """A shape takes 340 s: 200 to compile it, and 130 for plain's answers to unusual values."""
    world = World(compile_s=200.0)
    assert len(world.search((1, 4), (1, 5), (1, 6), end_s=800.0)) == 2
    assert world.made == [(1, 4), (1, 5)]
    assert World().search((1, 4), first_s=5.0, end_s=5.0) == []


def test_where_nothing_gains_the_others_are_not_tried() -> None:
    world = World(compiled_s=1.1)
    assert world.search(*[(1, size) for size in range(30, 50)]) == [0.0] * 4
    far_slower = World(compiled_s=9.0)
    assert far_slower.search((1, 30), (1, 31)) == [0.0]
    assert far_slower.used == []


def test_a_shape_that_the_model_rejects_is_left_out() -> None:
    world = World(longest=10)
    assert world.search((1, 8), (1, 12), (2, 8)) == pytest.approx([8.75, 0.0, 8.75])
    assert world.used == [(1, 8), (2, 8)]


@pytest.mark.parametrize("world", [World(error=1.0), World(compiled_s=-1.0)])
def test_what_disagrees_or_cannot_be_compiled_is_used_nowhere(world: World) -> None:
    assert world.search((1, 4), (1, 5)) == []
    assert world.used is None


def test_what_is_wanted_is_not_measured() -> None:
    world = World(compiled_s=3.0)
    assert world.search((1, 4), measured=False) == [1.0]
    assert world.used == [(1, 4)]
