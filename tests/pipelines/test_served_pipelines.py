"""Pipelines that wait for their models and follow them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import numpy as np
import pytest

from app.core.errors import InferenceFailed, InvalidRequest, ModelNotReady, SignatureNotFound
from app.core.events import ignore
from app.core.inference import Array, InferenceRequest, TensorSpec
from app.core.versions import VersionState
from app.model import Model
from app.pipelines.pipeline_model import PipelineModel
from app.pipelines.served_pipelines import ServedPipelines
from app.repository.servable import Servable
from tests.pipelines.pipeline_world import CASCADE, CHAIN, FLOAT32, LIMITS, SIZES, World, rows_of, scenario


def hundredfold(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {"y": inputs["x"] * 100}


def test_a_pipeline_waits_for_its_models_by_name() -> None:
    async def play(world: World) -> None:
        assert not world.pipelines.why_waiting(CASCADE)
        del world.models["big"]
        assert world.pipelines.why_waiting(CASCADE) == "waits for the model big (not there)"
        assert not world.pipelines.why_waiting(b"steps: 7"), "its load tells what is wrong"
        with pytest.raises(InferenceFailed, match="waits for the model big"):
            world.load(CASCADE)

    scenario(play)


def test_a_step_whose_model_is_a_pipeline_that_waits_is_told_so() -> None:
    """Not by its own reason: that of two that name each other would grow with every look at them."""

    async def play(world: World) -> None:
        def find(*_: object) -> Model:
            raise ModelNotReady("Model big waits for the model pipeline", is_pipeline=True)

        pipelines = ServedPipelines(find, world.batcher, SIZES, 0, LIMITS, world.loop.time)
        told = "waits for the models small (a pipeline: a step should be a model), big (a pipeline: a step should be"
        assert pipelines.why_waiting(CASCADE).startswith(told)

    scenario(play)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b"steps: 7", "pipeline.yaml: .*steps"),
        (CASCADE.replace(b"small.score <", b"small.scores <"), "pipeline.yaml: step 'big': .*no output 'scores'"),
    ],
)
def test_a_wrong_text_fails_to_load_with_its_place(text: bytes, fault: str) -> None:
    async def play(world: World) -> None:
        with pytest.raises(InferenceFailed, match=fault):
            world.load(text)

    scenario(play)


def test_all_steps_of_a_request_use_the_versions_that_were_there_when_it_began() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        began = world.ask(model, 1)
        await asyncio.sleep(0.5)  # its first step is being computed
        world.add("big", 2, hundredfold)
        world.pipelines.refresh()
        after = world.ask(model, 1)
        closing = asyncio.create_task(world.models["big"].pop(1).close())
        await asyncio.sleep(0)
        assert not closing.done()
        assert (await began).outputs["y"][0, 0] == 20
        assert (await after).outputs["y"][0, 0] == 200
        await closing
        assert world.loaded["big", 1].closed

    scenario(play)


def test_a_version_that_is_not_used_any_more_ends_at_once() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        world.add("big", 2, hundredfold)
        world.pipelines.refresh()
        await world.models["big"].pop(1).close()
        assert (await world.ask(model, 1)).outputs["y"][0, 0] == 200

    scenario(play)


@pytest.mark.parametrize("pinned", [b"big:1", b"big:stable"])
def test_a_pinned_version_stays(pinned: bytes) -> None:
    async def play(world: World) -> None:
        world.labels["big"] = {"stable": 1}
        model = world.load(CHAIN.replace(b"model: big", b'model: "' + pinned + b'"'))
        world.add("big", 2, hundredfold)
        world.pipelines.refresh()
        assert (await world.ask(model, 1)).outputs["y"][0, 0] == 20
        if pinned == b"big:stable":
            world.labels["big"] = {"stable": 2}
            world.pipelines.refresh()
            assert (await world.ask(model, 1)).outputs["y"][0, 0] == 200

    scenario(play)


def test_a_new_version_of_another_type_does_not_stop_the_pipeline(caplog: pytest.LogCaptureFixture) -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        world.add("small", 2, outputs={"y": TensorSpec("y", np.dtype(np.int32), (None, 2))})
        for _ in range(3):
            world.pipelines.refresh()
        (told,) = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
        assert told.endswith("first.y is int32, but should be float32, and goes on with those that it has")
        assert (await world.ask(model, 1)).outputs["y"][0, 0] == 20
        world.add("small", 3)
        world.pipelines.refresh()
        assert (await world.ask(model, 1)).outputs["y"][0, 0] == 20
        assert world.loaded["small", 3].calls

    scenario(play)


def test_a_model_that_is_gone_is_let_go_and_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        under_way = world.ask(model, 1)
        await asyncio.sleep(0.5)
        gone = world.models.pop("big")
        world.pipelines.refresh()
        closing = asyncio.create_task(gone[1].close())
        with pytest.raises(ModelNotReady, match="Model pipeline waits for the model big"):
            await world.ask(model, 1)
        assert (await under_way).outputs["y"][0, 0] == 20
        await closing
        world.add("big", 2, hundredfold)
        world.pipelines.refresh()
        assert (await world.ask(model, 1)).outputs["y"][0, 0] == 200
        assert sum("answers no requests" in each for each in caplog.messages) == 1

    scenario(play)


def test_a_pipeline_whose_model_has_gone_is_not_told_as_available_until_it_is_there_again() -> None:
    async def play(world: World) -> None:
        servable, model = Servable("pipeline", 1, ignore), world.load(CHAIN)

        async def load() -> PipelineModel:
            return model

        await servable.load(load(), frozenset())
        gone, states = world.models.pop("big"), [servable.status]
        world.pipelines.refresh()
        states.append(servable.status)
        world.models["big"] = gone
        world.pipelines.refresh()
        states.append(servable.status)
        assert [each.state for each in states] == [VersionState.AVAILABLE, VersionState.START, VersionState.AVAILABLE]
        assert "waits for the model big (not there)" in states[1].error_message

    scenario(play)


def test_what_keeps_a_pipeline_from_its_models_is_told_each_time_that_it_begins(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play(world: World) -> None:
        world.load(CHAIN)
        for version in (2, 4, 6):
            world.add("small", version, outputs={"y": TensorSpec("y", np.dtype(np.int32), (None, 2))})
            for _ in range(3):
                world.pipelines.refresh()
            if version == 4:  # back to the version before
                del world.models["small"][version]
            else:
                world.add("small", version + 1)
            world.pipelines.refresh()
        told = [each for each in caplog.records if each.levelno == logging.ERROR]
        assert len(told) == 3

    scenario(play)


def test_a_model_that_became_a_pipeline_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        world.models["big"] = {2: world.served["pipeline"]}  # type: ignore[dict-item]  # as a folder that changed
        for _ in range(3):
            world.pipelines.refresh()
        assert [each for each in caplog.messages if "big" in each] == [
            "Model pipeline version 1 does not fit the new versions of its models: big is a pipeline: a step should be "
            "a model, and goes on with those that it has"
        ]
        assert not any(each.exc_info for each in caplog.records)
        assert (await world.ask(model, 1)).outputs["y"][0, 0] == 20

    scenario(play)


def test_closing_waits_for_flows_and_then_frees_the_models() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        under_way = world.ask(model, 1)
        await asyncio.sleep(0.5)
        closing = asyncio.create_task(model.close())
        freed = asyncio.create_task(world.models["big"][1].close())
        await asyncio.sleep(0)
        with pytest.raises(ModelNotReady, match="Version 1 of model pipeline is being unloaded"):
            await world.ask(model, 1)
        assert not closing.done()
        assert not freed.done()
        assert (await under_way).outputs["y"][0, 0] == 20
        await closing
        await freed
        world.pipelines.refresh()
        await model.close()

    scenario(play)


def test_a_pipeline_can_be_no_step_of_another() -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN, "chain")
        find = world.pipelines._find
        world.pipelines._find = lambda name, *more: model if name == "chain" else find(name, *more)  # type: ignore[assignment,misc,return-value]  # finds a pipeline, too
        with pytest.raises(InferenceFailed, match="chain is a pipeline: a step should be a model"):
            world.load(CHAIN.replace(b"model: big", b"model: chain"))

    scenario(play)


@pytest.mark.parametrize(
    ("request_", "fault"),
    [
        (InferenceRequest({"z": rows_of(1)}), "unexpected|missing|z"),
        (InferenceRequest({"x": rows_of(1).astype(np.int32)}), "dtype int32"),
        (InferenceRequest({"x": np.zeros((1, 3), np.float32)}), r"shape \[1,3\]; expected \[\?,2\]"),
        (InferenceRequest({"x": np.zeros((), np.float32)}), "shape"),
        (InferenceRequest({"x": rows_of(1)}, outputs=("z",)), "z"),
    ],
)
def test_a_request_is_checked_before_its_first_step(request_: InferenceRequest, fault: str) -> None:
    async def play(world: World) -> None:
        model = world.load(CHAIN)
        for _ in range(2):
            with pytest.raises(InvalidRequest, match=fault):
                await model.infer(request_)
        with pytest.raises(SignatureNotFound):
            await model.infer(InferenceRequest({"x": rows_of(1)}, "other"))
        assert model.signature("serving_default").inputs["x"].dtype == FLOAT32
        assert not world.loaded["small", 1].calls

    scenario(play)
