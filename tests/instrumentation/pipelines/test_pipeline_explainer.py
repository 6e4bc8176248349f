"""The batching page of pipelines that run, in fake time: a call takes a second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.batching.policy import BatchingOptions
from app.core.batching_explanation import BatchingExplanation, PipelineExplanation, StepExplanation
from app.core.events import ModelStateChanged, RequestFinished, tell_all
from app.core.inference import InferenceRequest
from app.instrumentation.batching_explainer import BatchingExplainer
from app.instrumentation.counts import Counts
from app.instrumentation.model_facts import ModelFacts
from app.instrumentation.pipelines.pipeline_explainer import ModelRequests
from tests.pipelines.pipeline_world import CASCADE, CHAIN, EACH, World, rows_of
from tests.support.fakes import fake_time, run_in_fake_time


class Explained(World):
    def __init__(self) -> None:
        super().__init__()
        counts = Counts()
        self.explainer = BatchingExplainer(counts, ModelFacts(), fake_time)
        self.tell = tell_all(counts.subscriptions, self.explainer.subscriptions)
        self._told = 0

    def page(self, name: str = "pipeline") -> BatchingExplanation:
        for event in self.events[self._told :]:
            self.tell(event)
        self._told = len(self.events)
        return self.explainer.explain(name, BatchingOptions(), [self.served[name]], self.pipelines.models)

    def explained(self, name: str = "pipeline") -> PipelineExplanation:
        found = self.page(name).versions[0].pipeline
        assert found is not None
        return found

    def steps(self, name: str = "pipeline") -> dict[str, StepExplanation]:
        return {each.step: each for each in self.explained(name).steps}

    async def keep_busy(self, model: str) -> None:
        """One request after the other: each is more urgent than work in bulk."""
        while True:
            await self.find(model).infer(InferenceRequest({"x": rows_of(1)}))

    async def ask_often(self, name: str, *rows: float, times: int = 25) -> None:
        for _ in range(times):
            await self.ask(self.served[name], *rows)


def play(scenario: Callable[[Explained], Awaitable[None]]) -> None:
    async def main() -> None:
        world = Explained()
        await scenario(world)
        await world.end()

    run_in_fake_time(main())


def test_steps_are_told_with_their_rows_batches_and_shares_of_the_time() -> None:
    async def scenario(world: Explained) -> None:
        model = world.load(CASCADE)
        await asyncio.gather(world.ask(model, 1, 7, 8), world.ask(model, 9, 2))
        await world.ask(model, 8)
        found, steps = world.explained(), world.steps()
        assert (found.requests, found.missing) == ({"answered": 3}, "")
        assert found.total_ms is not None
        small, big = steps["small"], steps["big"]
        assert (small.models, small.needs, small.condition) == (["small/1"], [], None)
        assert (big.models, big.needs, big.condition) == (["big/1"], ["small"], ["small"])
        assert (small.computed, small.rows, small.row_share) == (3, 6, 1.0)
        assert (big.computed, big.passed_over, big.rows, big.row_share) == (2, 1, 2, 0.3333)
        whole_ms = 3 * found.total_ms.mean
        assert small.compute_share == pytest.approx(3000 / whole_ms, rel=1e-3)
        assert big.compute_share == pytest.approx(2000 / whole_ms, rel=1e-3)
        shares = [each.compute_share + each.wait_share for each in steps.values()]
        assert sum(shares) + found.overhead_share == pytest.approx(1, rel=1e-3)

    play(scenario)


def test_a_chain_that_waits_for_calls_of_other_models_is_better_fused() -> None:
    async def scenario(world: Explained) -> None:
        world.load(CHAIN)
        others = asyncio.create_task(world.keep_busy("detect"))
        for _ in range(25):
            await world.served["pipeline"].infer(InferenceRequest({"x": rows_of(1)}, priority=-1))
        others.cancel()
        (advice,) = [each for each in world.page().advice if "fuse" in each]
        assert advice.startswith("Version 1: fuse the steps 'first' and 'second' into one SavedModel")

        # Somebody else asks one of the models, too: it says so.
        for _ in range(25):
            world.tell(RequestFinished("p", "200", "big", 1, "serving_default", 1.0))
        (advice,) = [each for each in world.page().advice if "fuse" in each]
        assert "Do not fuse them all the same" in advice
        assert "of the requests to the model of 'second' come from elsewhere" in advice

    play(scenario)


def test_requests_of_other_pipelines_and_steps_come_from_elsewhere() -> None:
    async def scenario(world: Explained) -> None:
        world.load(CASCADE)
        world.load(EACH, "each")
        await world.ask_often("pipeline", 1, times=5)
        world.page()
        await world.ask_often("each", 1, times=4)
        assert world.steps()["small"].elsewhere_share == 0.5, "its first request is where the counts begin"
        assert world.steps()["big"].elsewhere_share == 0
        world.served["each"].unbind("is gone")
        assert world.steps()["small"].elsewhere_share == 0
        assert world.steps("each") == {}

    play(scenario)


def test_requests_to_versions_that_are_forgotten_still_count() -> None:
    counts = Counts()
    tell = tell_all(counts.subscriptions)
    for version in range(1, 10):
        tell(RequestFinished("p", "200", "big", version, "serving_default", 1.0))
        tell(ModelStateChanged("big", version, "END"))
    assert ModelRequests.of(counts).direct == {"big": 9}


def test_direct_requests_before_the_pipelines_first_do_not_count() -> None:
    async def scenario(world: Explained) -> None:
        for _ in range(1000):
            world.tell(RequestFinished("p", "200", "small", 1, "serving_default", 1.0))
        world.load(CHAIN)
        await world.ask_often("pipeline", 1, times=3)
        assert world.steps()["first"].elsewhere_share == 0

    play(scenario)


def test_a_pipeline_without_its_models_says_what_it_waits_for() -> None:
    async def scenario(world: Explained) -> None:
        world.load(CHAIN)
        del world.models["big"]
        world.pipelines.refresh()
        (advice,) = world.page().advice
        assert advice.startswith("Version 1: it answers no requests: it waits for the model big (not there)")

    play(scenario)


def test_advice_on_answers_is_given_of_pipelines_too() -> None:
    async def scenario(world: Explained) -> None:
        world.load(CHAIN)
        for code in ("200", "503"):
            world.tell(RequestFinished("p", code, "pipeline", 1, "serving_default", 1.0))
        first, second = world.page().advice
        assert first == "Version 1: requests answered so far: 0; ask again after some traffic."
        assert second.startswith("Version 1, signature 'serving_default': 50% of the requests were rejected")

    play(scenario)
