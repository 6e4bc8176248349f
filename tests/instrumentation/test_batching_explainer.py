"""What is counted of a real model and batcher in fake time, and how it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from app.batching.batcher import Batcher
from app.batching.policy import BatchingOptions, SelfTuning
from app.batching.shapes.padding import ShapePadding
from app.batching.state import BatcherOptions
from app.core.batch_sizes import BatchSizes
from app.core.batching_explanation import ROWS_LOST, BatchingExplanation, SignatureExplanation
from app.core.events import (
    BatchExecuted,
    ModelImproving,
    ModelStateChanged,
    RequestFinished,
    ShapesProbed,
    VariantsChosen,
    tell_all,
)
from app.core.inference import InferenceRequest, ModelSignature, TensorSpec
from app.instrumentation.batching_explainer import BatchingExplainer
from app.instrumentation.counts import Counts
from app.instrumentation.model_facts import ModelFacts
from app.model import Model
from app.placement import RequestPlacement
from tests.support.fakes import FakeDevice, FakeLoadedModel, fake_time, rows_of, run_in_fake_time

OPTIONS = BatchingOptions(target_p99_ms=5000)


class World:
    """`largest` 8; a call takes a second."""

    def __init__(self, **more: Any) -> None:
        counts, facts = Counts(), ModelFacts()
        self.explanations = BatchingExplainer(counts, facts, fake_time)
        self.tell = tell_all(counts.subscriptions, facts.subscriptions, self.explanations.subscriptions)
        self.tell(ModelStateChanged("m", 1, "START"))
        self.loaded = FakeLoadedModel()
        batcher = Batcher([FakeDevice()], SelfTuning(OPTIONS), BatcherOptions(1000), self.tell, fake_time)
        self.model = Model(RequestPlacement("m", 1, self.loaded, BatchSizes.powers_of_two(8), **more), batcher)

    async def infer(self, *rows: int) -> None:
        requests = [InferenceRequest(rows_of(1.0, count)) for count in rows]
        await asyncio.gather(*map(self.model.infer, requests))

    def explain(self) -> BatchingExplanation:
        return self.explanations.explain("m", OPTIONS, [self.model])

    def signature(self, name: str = "serving_default") -> SignatureExplanation:
        (version,) = self.explain().versions
        return next(each for each in version.signatures if each.signature == name)


def play(scenario: Callable[[World], Awaitable[None]], **more: Any) -> None:
    async def main() -> None:
        await scenario(World(**more))

    run_in_fake_time(main())


def test_batches_are_told_with_their_sizes_reasons_and_times() -> None:
    async def scenario(world: World) -> None:
        await world.infer(1, 2, 2)
        await world.infer(1, 8)
        found = world.signature()
        assert (found.calls, found.requests, found.rows) == (3, 5, 14)
        assert (found.rows_per_call, found.requests_per_call) == (4.667, 1.667)
        assert [tuple(each.model_dump().values()) for each in found.batch_sizes] == [(1, 1, 1), (8, 2, 13)]
        assert sum(found.closed_by.values()) == 3
        assert found.compute_ms is not None
        assert found.compute_ms.mean == pytest.approx(1000)
        assert found.wait_ms is not None
        assert found.wait_ms.mean == pytest.approx(200), "one of five waited for a call of a second"
        assert found.padding.rows == 3
        assert found.padding.row_share == pytest.approx(3 / 17, rel=1e-3)

    play(scenario)


def test_what_calls_cost_is_told_as_it_was_learnt() -> None:
    async def scenario(world: World) -> None:
        (seeded,) = world.signature("pair").costs
        assert [(call.rows, call.ms, call.measured) for call in seeded.calls] == [
            (1, 1000, True), (2, 1000, False), (4, 1000, False), (8, 1000, True),
        ]  # fmt: skip
        assert (seeded.shape, seeded.outputs, seeded.bucket, seeded.efficient_rows) == (((2,), (2,)), (), False, 8)
        assert world.signature().costs == [], "it was neither timed nor called"
        await world.infer(4)
        (learnt,) = world.signature().costs
        assert [(call.rows, call.measured) for call in learnt.calls if call.measured] == [(4, True)]
        assert world.signature().speed_up is None, "what a row alone takes was not seen yet"
        await world.infer(1)
        assert world.signature().speed_up == pytest.approx(2.5)

    play(scenario, costs={"pair": {1: 1.0, 8: 1.0}})


def test_of_many_shapes_some_are_listed() -> None:
    shapes = {name: TensorSpec(name, np.dtype(np.float32), (None, None)) for name in ("x", "y")}
    signature = ModelSignature("free", {"x": shapes["x"]}, {"y": shapes["y"]})

    async def scenario(world: World) -> None:
        world.loaded.run = lambda signature, inputs, outputs: {"y": inputs["x"]}  # type: ignore[method-assign]  # of any shape
        for width in range(40):
            await world.model.infer(InferenceRequest({"x": np.zeros((1, width), np.float32)}, "free"))
        found = world.signature("free")
        assert (len(found.costs), found.costs_left_out) == (32, 8)
        assert found.speed_up is None
        assert (found.shapes.free, found.shapes.shared) == (True, False)
        assert (
            found.shapes.explanation == "only equal shapes share a batch: pad_shapes is never, or there was no warm-up"
        )
        world.tell(ModelImproving("m", 1, "larger batches"))
        explanation = world.signature("free").shapes.explanation
        assert explanation == "only equal shapes share a batch: pad_shapes is never, or padding is still to be tried"

    play(scenario, signatures={"free": signature})


def test_padding_is_told_until_it_goes_wrong() -> None:
    padding = ShapePadding({"x": ("d1",)}, {"y": ("d1",)}, {"x": 0})

    async def scenario(world: World) -> None:
        spec = TensorSpec("x", np.dtype(np.float32), (None, None))
        world.model._placement.signatures = {"free": ModelSignature("free", {"x": spec}, {"y": spec})}
        world.tell(ShapesProbed("m", 1, "free", True, "padded: x[?,d1]"))
        assert world.signature("free").shapes.model_dump() == {
            "free": True, "shared": True, "explanation": "padded: x[?,d1]",
        }  # fmt: skip
        padding.enabled = False
        assert world.signature("free").shapes.model_dump() == {
            "free": True, "shared": False,
            "explanation": "only equal shapes share a batch: padding did not go as it did when it was tried",
        }  # fmt: skip

    play(scenario, paddings={"free": padding})


def test_what_shares_no_calls_is_said() -> None:
    async def scenario(world: World) -> None:
        total, default = world.signature("total"), world.signature()
        assert total.alone == "input 'x' has the shape [], output 'y' has the shape [], without a free first dimension"
        assert (total.batched, total.shapes.explanation) == (False, f"each request runs alone: {total.alone}")
        assert (default.batched, default.shapes.explanation) == (True, "all requests have the same inner shapes")
        spec = TensorSpec("x", np.dtype(np.float32), (None,))
        splits = TensorSpec("x_1", np.dtype(np.int64), (None,))
        ragged = ModelSignature("r", {"x": spec, "x_1": splits}, {"y": spec}, ragged={"x": ("x_1",)})
        world.model._placement.signatures = {"r": ragged}
        assert world.signature("r").shapes.explanation.startswith("ragged")
        words = TensorSpec("words", np.dtype(np.float32), (None, None))
        out = {"y": spec, "y_1": splits}
        world.model._placement.signatures = {
            "o": ModelSignature("o", {"words": words}, out, ragged_outputs={"y": ("y_1",)})
        }
        assert world.signature("o").shapes.model_dump() == {
            "free": True, "shared": False, "explanation": "only equal shapes share a batch: outputs are ragged",
        }  # fmt: skip
        world.model.sizes = BatchSizes((1,))
        assert world.signature("o").shapes.explanation == "each request runs alone"

    play(scenario)


def test_the_explanation_says_that_a_signature_that_mixes_rows_runs_alone() -> None:
    async def scenario(world: World) -> None:
        mixed = {"y": np.zeros((1, 2), np.float32)}
        world.loaded.run = lambda *_: mixed
        await world.infer(1)
        assert world.signature().batched
        await world.infer(1, 1, 1)
        found = world.signature()
        assert (found.batched, found.shapes.explanation) == (False, ROWS_LOST)

    play(scenario)


def test_variants_are_told() -> None:
    async def scenario(world: World) -> None:
        world.tell(VariantsChosen("m", 1, "serving_default", {1: ("plain", 1.0), 8: ("xla", 2.345)}))
        assert [tuple(each.model_dump().values()) for each in world.signature().variants] == [
            (1, "plain", 1.0), (8, "xla", 2.35),
        ]  # fmt: skip
        assert not world.signature("pair").variants

    play(scenario)


def test_answers_are_counted_by_code_over_all_protocols() -> None:
    async def scenario(world: World) -> None:
        for protocol, code, signature in (
            ("v1", "200", "serving_default"), ("v2", "200", "serving_default"), ("grpc", "OK", "serving_default"),
            ("v1", "504", "serving_default"), ("v1", "200", ""),
        ):  # fmt: skip
            world.tell(RequestFinished(protocol, code, "m", 1, signature, 0.1))
        assert world.signature().answers == {"200": 2, "OK": 1, "504": 1}

    play(scenario)


def test_waste_is_weighed_by_time() -> None:
    async def scenario(world: World) -> None:
        for seconds, padding_ratio in ((3.0, 0.5), (1.0, 0.1)):
            world.tell(
                BatchExecuted("m", 1, "serving_default", 4, 0, "idle", seconds, [0.0], padding_ratio=padding_ratio)
            )
        assert world.signature().padding.compute_share == 0.4

    play(scenario)


@pytest.mark.parametrize("again", ["options", "load"])
def test_figures_begin_anew_with_new_options_and_with_a_new_life(again: str) -> None:
    async def scenario(world: World) -> None:
        await asyncio.sleep(5)  # what loading takes
        world.tell(ModelStateChanged("m", 1, "AVAILABLE"))
        world.tell(RequestFinished("v1", "200", "m", 1, "serving_default", 0.1))
        await world.infer(1, 1)
        assert world.explain().versions[0].counted_for_s == 1.0
        if again == "options":
            world.explanations.reset("another")
            assert world.signature().calls == 1
            world.explanations.reset("m")
        else:
            for state in ("END", "LOADING", "AVAILABLE"):
                world.tell(ModelStateChanged("m", 1, state))
        (version,) = world.explain().versions
        found = world.signature()
        assert version.counted_for_s == 0.0
        assert (found.calls, found.requests, found.rows, found.answers) == (0, 0, 0, {})
        assert (found.wait_ms, found.compute_ms) == (None, None)
        await world.infer(2)
        assert (world.signature().calls, world.signature().rows) == (1, 2)

    play(scenario)


def test_advice_names_version_and_signature() -> None:
    async def scenario(world: World) -> None:
        explanation = world.explain()
        assert (explanation.model, explanation.options.target_p99_ms) == ("m", 5000)
        (alone,) = explanation.advice
        assert alone.startswith("Version 1, signature 'total': each request runs alone and unpadded, as input 'x' has")
        await world.infer(1)
        world.tell(RequestFinished("v1", "504", "m", 1, "pair", 0.1))
        assert [sentence.partition(":")[0] for sentence in world.explain().advice] == [
            "Version 1, signature 'serving_default'",
            "Version 1, signature 'total'",
            "Version 1, signature 'pair'",
            "Version 1, signature 'pair'",
        ]
        assert BatchingExplanation(**explanation.model_dump(mode="json")).model == "m"

    play(scenario)


def test_before_traffic_there_is_nothing_to_say_where_requests_share_calls() -> None:
    async def scenario(world: World) -> None:
        signatures = world.model._placement.signatures
        world.model._placement.signatures = {"serving_default": signatures["serving_default"]}
        assert world.explain().advice == ["No request was counted so far; ask again after some traffic."]

    play(scenario)


def test_a_version_that_never_loaded_here_counts_from_the_start_of_the_process() -> None:
    async def scenario(world: World) -> None:
        await world.infer(1)
        assert world.signature().calls == 1
        assert world.explanations.explain("n", OPTIONS, []).versions == []

    play(scenario)
