from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from app.batching.policy import BatchingOptions
from app.core.batch_sizes import BatchSizes
from app.core.errors import InvalidRequest, ModelNotReady
from app.core.interfaces import NO_OVERRIDES, LoadOverrides
from app.protocols.open_inference.model_configuration.config_overrides import override_document, read_overrides
from app.protocols.open_inference.model_configuration.triton_model_config import config_document
from tests.support.open_inference_world import World
from tests.support.protocol_fakes import signature_of, specs


def present(batched: bool = True, sizes: tuple[int, ...] = (1, 2, 4, 8)) -> dict[str, Any]:
    rows = None if batched else 2
    signature = signature_of(specs(x=("float32", (rows, 3))), specs(y=("int64", (rows,))), "s")
    return config_document("m", signature, BatchSizes(sizes), BatchingOptions(max_batch_delay_ms=2))


def batching(**fields: Any) -> dict[str, Any]:
    return {"dynamic_batching": fields}


@pytest.mark.parametrize(
    ("config", "overrides"),
    [
        ({}, NO_OVERRIDES),
        ({"max_batch_size": 16}, LoadOverrides((1, 2, 4, 8, 16))),
        ({"max_batch_size": "16"}, LoadOverrides((1, 2, 4, 8, 16))),
        ({"max_batch_size": 6}, LoadOverrides((1, 2, 4, 6))),
        ({"max_batch_size": 16, **batching(preferred_batch_size=[4, 8])}, LoadOverrides((4, 8, 16))),
        (batching(preferred_batch_size=[2]), LoadOverrides((2, 8))),
        (batching(max_queue_delay_microseconds=500), LoadOverrides((), 0.5)),
        (batching(max_queue_delay_microseconds="0"), LoadOverrides((), 0.0)),
        ({"name": "m", "backend": "tensorflow", "instance_group": []}, NO_OVERRIDES),
        ({"ensemble_scheduling": {}, "metric_tags": {}, "cc_model_filenames": []}, NO_OVERRIDES),
        (batching(priority_levels=10, default_priority_level="5"), NO_OVERRIDES),
    ],
)
def test_what_a_configuration_overrides(config: dict[str, Any], overrides: LoadOverrides) -> None:
    assert read_overrides(config, present()) == overrides


def test_sizes_that_stay_are_those_of_the_model() -> None:
    assert read_overrides({"max_batch_size": 8}, present(sizes=(3, 8))) == LoadOverrides((3, 8))


def test_a_configuration_may_be_sent_back_as_it_was_read() -> None:
    assert read_overrides(present(), present()) == LoadOverrides((1, 2, 4, 8), 2.0)
    assert read_overrides(present(batched=False), present(batched=False)) == NO_OVERRIDES
    changed = {**present(), "max_batch_size": 16}
    assert read_overrides(changed, present()) == LoadOverrides((1, 2, 4, 8, 16), 2.0)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"name": "n"}, "Field 'name' of the config cannot be overridden: 'n' instead of 'm'"),
        ({"instance_group": [{"count": 2}]}, "instance_group.* can override max_batch_size, dynamic_batching"),
        ({"optimization": {"cuda": {"graphs": True}}}, "Field 'optimization.cuda.graphs' .* True instead of None"),
        (batching(priority_levels=3), "Field 'dynamic_batching.priority_levels' .* 3 instead of 10"),
        (batching(preserve_ordering=True), "preserve_ordering"),
        ({"input": [{"name": "z"}]}, "Field 'input'"),
        ({"max_batch_size": 0}, "'max_batch_size' must be a whole number from 1"),
        ({"max_batch_size": 1.5}, "'max_batch_size' must be a whole number from 1"),
        ({"max_batch_size": True}, "'max_batch_size' must be a whole number from 1"),
        ({"max_batch_size": "٣"}, "'max_batch_size' must be a whole number from 1"),
        ({"max_batch_size": 2**31}, "'max_batch_size' must be a whole number from 1"),
        ({"max_batch_size": 4, **batching(preferred_batch_size=[8])}, "from 1 to 4, not 8"),
        (batching(preferred_batch_size=4), "must be a list of row counts, not 4"),
        (batching(preferred_batch_size=[4, 2]), "must be ascending"),
        (batching(max_queue_delay_microseconds=-1), "max_queue_delay_microseconds' must be a whole number from 0"),
    ],
)
def test_what_cannot_be_overridden_is_named(config: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        read_overrides(config, present())


def test_a_model_without_batches_has_nothing_to_override() -> None:
    with pytest.raises(InvalidRequest, match=r"'max_batch_size' .* This model has no batches"):
        read_overrides({"max_batch_size": 8}, present(batched=False))


def test_a_pipeline_has_nothing_to_override() -> None:
    signature = signature_of(specs(x=("float32", (None, 3))), specs(y=("int64", (None,))), "s")
    pipeline = config_document("p", signature, BatchSizes((1, 2)), BatchingOptions(), pipeline=True)
    assert read_overrides(pipeline, pipeline) == NO_OVERRIDES
    told = "Field 'max_batch_size' .*: 8 instead of 2. This model is a pipeline: its batches are those of its models"
    with pytest.raises(InvalidRequest, match=told):
        read_overrides({"max_batch_size": 8}, pipeline)
    with pytest.raises(InvalidRequest, match=r"max_queue_delay_microseconds' .*: 5 instead of 0"):
        read_overrides(batching(max_queue_delay_microseconds=5), pipeline)


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"config": '"parameters": {"config": {{"max_batch_size": "16"}}}'}, "is not JSON"),
        ({"config": "[]"}, "must be a string with a JSON object"),
        ({"config": {"max_batch_size": 16}}, "must be a string with a JSON object"),
        ({"file:1/model.graphdef": "eA=="}, "Parameter 'file:1/model.graphdef' is not supported"),
    ],
)
def test_parameters_that_are_no_configuration_are_rejected(parameters: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        override_document(parameters)


def load(world: World, config: object) -> None:
    asyncio.run(world.served.load_model("m", {"config": json.dumps(config)}))


def test_a_load_overrides_what_its_configuration_says() -> None:
    world = World()
    load(world, {"max_batch_size": 16})
    asyncio.run(world.served.load_model("m", {}))
    assert world.repository.loads == [("m", LoadOverrides((1, 2, 4, 8, 16))), ("m", NO_OVERRIDES)]


def test_a_model_that_was_not_served_is_not_served_after_a_wrong_configuration() -> None:
    world = World()
    asyncio.run(world.served.unload_model("m"))
    with pytest.raises(InvalidRequest, match=r"^failed to load 'm': Field 'platform'"):
        load(world, {"platform": "onnx"})
    assert not world.served.model_ready("m")
    load(world, {"max_batch_size": 2})
    assert world.served.model_ready("m")


def test_a_served_model_serves_on_after_a_wrong_configuration() -> None:
    world = World()
    with pytest.raises(InvalidRequest, match=r"^failed to load 'm': Field 'platform'"):
        load(world, {"platform": "onnx"})
    assert world.served.model_ready("m")
    assert world.repository.loads == []


def test_a_model_that_does_not_load_is_told_as_without_a_configuration() -> None:
    with pytest.raises(ModelNotReady, match=r"^failed to load 'broken': Model broken failed to load: no graph"):
        asyncio.run(World().served.load_model("broken", {"config": "{}"}))


@pytest.mark.parametrize("by", ["rest", "grpc"])
def test_the_parameter_of_rest_and_of_grpc(by: str) -> None:
    world, text = World(), '{"max_batch_size": 2}'
    if by == "rest":
        assert world.post("/v2/repository/models/m/load", {"parameters": {"config": text}}).status == 200
    else:
        world.call("RepositoryModelLoad", model_name="m", parameters={"config": {"string_param": text}})
    assert world.repository.loads == [("m", LoadOverrides((1, 2)))]
