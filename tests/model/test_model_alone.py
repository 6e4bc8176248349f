"""Requests that share no call with others because a setting says so."""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from app.batching.batcher import Batcher
from app.batching.state import BatcherOptions
from app.core.batch_sizes import BatchSizes
from app.core.errors import InvalidRequest
from app.core.inference import Array, InferenceRequest, InferenceResponse
from app.model import Model
from app.placement import RequestPlacement
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeDevice, FakeLoadedModel, rows_of, run_in_fake_time
from tests.support.waiting import HANG_S


def with_model(scenario: Callable[[Model, FakeLoadedModel], Awaitable[None]], **more: bool) -> None:
    async def main() -> None:
        batcher = Batcher([FakeDevice()], WorkConserving(), BatcherOptions(100), clock=asyncio.get_running_loop().time)
        loaded = FakeLoadedModel()
        await scenario(Model(RequestPlacement("m", 1, loaded, BatchSizes((4,)), **more), batcher), loaded)

    run_in_fake_time(main())


def ask(model: Model, inputs: dict[str, Array], signature: str = "serving_default") -> asyncio.Task[InferenceResponse]:
    return asyncio.create_task(model.infer(InferenceRequest(inputs, signature)))


def test_without_batching_each_request_runs_alone_just_as_it_came() -> None:
    async def scenario(model: Model, loaded: FakeLoadedModel) -> None:
        answers = await asyncio.gather(ask(model, rows_of(1.0, 3)), ask(model, rows_of(2.0, 9)))
        assert [len(answer.outputs["y"]) for answer in answers] == [3, 9]
        assert [len(call) for call in loaded.function.calls] == [3, 9], "neither padded nor cut"

    with_model(scenario, batching=False)


def test_what_does_not_fit_runs_alone_and_what_fits_shares_its_batch_as_ever() -> None:
    async def scenario(model: Model, loaded: FakeLoadedModel) -> None:
        odd = {"x": np.full((3, 5), 7.0, np.float32)}
        answers = await asyncio.gather(ask(model, rows_of(1.0)), ask(model, odd), ask(model, rows_of(2.0)))
        assert answers[1].outputs["y"].tolist() == [[14.0] * 5] * 3
        assert [answer.timing.rows for answer in answers] == [2, 1, 2]

    with_model(scenario, strict_shapes=False)


def test_inputs_of_different_rows_are_the_models_to_judge() -> None:
    async def scenario(model: Model, _: FakeLoadedModel) -> None:
        uneven = {"x": rows_of(1.0, 2)["x"], "z": rows_of(1.0, 3)["x"]}
        answer = await ask(model, uneven, "pair")
        assert [len(answer.outputs[name]) for name in ("y", "w")] == [2, 3]

    with_model(scenario, strict_shapes=False)


def test_requests_that_run_alone_for_different_reasons_share_a_lane_and_closing_waits_for_all() -> None:
    async def scenario(model: Model, loaded: FakeLoadedModel) -> None:
        await ask(model, rows_of(1.0), "uneven")
        odd = {"x": np.full((1, 3), 7.0, np.float32)}
        asked = [ask(model, inputs, "uneven") for inputs in (rows_of(2.0), odd, rows_of(3.0))]
        await asyncio.sleep(0)
        closing = asyncio.create_task(model.close())
        answers = await asyncio.gather(*asked)
        assert [answer.outputs["y"].tolist() for answer in answers] == [[2.0], [7.0], [3.0]]
        async with asyncio.timeout(HANG_S):
            await closing
        assert loaded.closed

    with_model(scenario, strict_shapes=False)


@pytest.mark.parametrize("inputs", [{"z": rows_of(1.0)["x"]}, {"x": np.zeros((1, 2))}])
def test_names_and_dtypes_are_checked_all_the_same(inputs: dict[str, Array]) -> None:
    async def scenario(model: Model, _: FakeLoadedModel) -> None:
        with pytest.raises(InvalidRequest):
            await ask(model, inputs)

    with_model(scenario, strict_shapes=False)
