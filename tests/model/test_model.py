import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import numpy as np
import pytest

from app.batching.batcher import Batcher
from app.batching.shapes.padding import ShapePadding
from app.batching.state import BatcherOptions
from app.core.batch_sizes import BatchSizes
from app.core.errors import InvalidRequest, ModelNotReady, SignatureNotFound
from app.core.inference import Array, InferenceRequest, InferenceResponse, ModelSignature, TensorSpec
from app.model import Model
from app.placement import RequestPlacement
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeDevice, FakeLoadedModel, rows_of, run_in_fake_time


def with_model(scenario: Callable[[Model, FakeLoadedModel], Awaitable[None]]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        batcher = Batcher([FakeDevice()], WorkConserving(), BatcherOptions(100), clock=loop.time)
        loaded = FakeLoadedModel()
        await scenario(Model(RequestPlacement("m", 3, loaded, BatchSizes.powers_of_two(8)), batcher), loaded)

    run_in_fake_time(main())


def ask(model: Model, inputs: dict[str, Array], **more: Any) -> asyncio.Task[InferenceResponse]:
    return asyncio.create_task(model.infer(InferenceRequest(inputs, **more)))


def test_an_answer_names_model_version_and_signature() -> None:
    async def scenario(model: Model, _: FakeLoadedModel) -> None:
        response = await ask(model, rows_of(2.0))
        assert (response.model, response.version, response.signature) == ("m", 3, "serving_default")
        assert response.outputs["y"].tolist() == [[4.0, 4.0]]
        assert response.timing.rows == 1

    with_model(scenario)


def test_requests_of_one_lane_share_a_call_and_others_do_not() -> None:
    async def scenario(model: Model, loaded: FakeLoadedModel) -> None:
        pair = {"x": rows_of(1.0)["x"], "z": rows_of(5.0)["x"]}
        both, y, y_again, w = await asyncio.gather(
            ask(model, pair, signature="pair"),
            ask(model, pair, signature="pair", outputs=("y",)),
            ask(model, pair, signature="pair", outputs=("y",)),
            ask(model, pair, signature="pair", outputs=("w",)),
        )
        assert set(both.outputs) == {"y", "w"}
        assert set(y.outputs) == {"y"}
        assert w.outputs["w"].tolist() == [[15.0, 15.0]]
        assert y_again.timing.rows == 2
        assert loaded.wanted == [(), ("y",), ("w",)]

    with_model(scenario)


def test_a_scalar_signature_runs_alone() -> None:
    async def scenario(model: Model, _: FakeLoadedModel) -> None:
        answers = await asyncio.gather(
            *[ask(model, {"x": np.array(value, np.float32)}, signature="total") for value in (1.0, 2.0)]
        )
        assert [answer.outputs["y"].item() for answer in answers] == [2.0, 3.0]
        assert [answer.timing.rows for answer in answers] == [1, 1]

    with_model(scenario)


def test_outputs_that_do_not_follow_the_rows_are_answered_alone_from_then_on() -> None:
    async def scenario(model: Model, _: FakeLoadedModel) -> None:
        for _ in range(2):
            answers = await asyncio.gather(*[ask(model, rows_of(value, 2), signature="uneven") for value in (1.0, 2.0)])
            assert [answer.outputs["y"].tolist() for answer in answers] == [[1.0], [2.0]]

    with_model(scenario)


def test_what_waits_when_that_is_found_is_not_cut_into_rows() -> None:
    async def scenario(model: Model, _: FakeLoadedModel) -> None:
        values = [float(value) for value in range(7)]
        answers = await asyncio.gather(*[ask(model, rows_of(value, 2), signature="uneven") for value in values])
        assert [answer.outputs["y"].tolist() for answer in answers] == [[value] for value in values]

    with_model(scenario)


@pytest.mark.parametrize(
    ("inputs", "more", "error"),
    [
        ({"z": np.zeros((1, 2), np.float32)}, {}, InvalidRequest),
        (rows_of(1.0), {"signature": "none"}, SignatureNotFound),
        (rows_of(1.0), {"outputs": ("none",)}, InvalidRequest),
        (rows_of(-1.0), {}, InvalidRequest),
    ],
)
def test_what_does_not_fit_is_rejected(
    inputs: dict[str, Array], more: dict[str, str | tuple[str, ...]], error: type[Exception]
) -> None:
    async def scenario(model: Model, _: FakeLoadedModel) -> None:
        with pytest.raises(error):
            await ask(model, inputs, **more)

    with_model(scenario)


def test_choices_of_outputs_are_not_remembered_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.placement._MAX_FUNCTIONS", 1)

    async def scenario(model: Model, loaded: FakeLoadedModel) -> None:
        pair = {"x": rows_of(1.0)["x"], "z": rows_of(5.0)["x"]}
        for outputs in (("y",), ("w",), ("y",)):
            await ask(model, pair, signature="pair", outputs=outputs)
        assert loaded.wanted == [("y",), ("w",), ("y",)]

    with_model(scenario)


def test_closing_waits_for_what_was_accepted() -> None:
    async def scenario(model: Model, loaded: FakeLoadedModel) -> None:
        accepted = ask(model, rows_of(2.0))
        await asyncio.sleep(0)
        assert repr(model) == "<Model m/3, 1 open requests>"
        closing = asyncio.create_task(model.close())
        await asyncio.sleep(0)
        with pytest.raises(ModelNotReady, match="being unloaded"):
            await ask(model, rows_of(2.0))
        assert not loaded.closed
        await accepted
        await closing
        assert loaded.closed
        await model.close()

    with_model(scenario)


def test_what_its_calls_cost_is_told_by_signature_outputs_and_shape() -> None:
    async def scenario(model: Model, _: FakeLoadedModel) -> None:
        assert list(model.learnt_costs()) == []
        await ask(model, rows_of(1, 2))
        pair = {**rows_of(1), "z": rows_of(1)["x"]}
        await ask(model, pair, signature="pair", outputs=("w",))
        found = [(each.signature, each.outputs, each.shape, each.bucket) for each in model.learnt_costs()]
        assert found == [("serving_default", (), ((2,),), False), ("pair", ("w",), ((2,), (2,)), False)]
        assert [set(each.measured) for each in model.learnt_costs()] == [{2}, {1}]

    with_model(scenario)


def test_of_what_runs_alone_the_costs_of_one_row_are_told() -> None:
    async def scenario(model: Model, _: FakeLoadedModel) -> None:
        await ask(model, {"x": np.array(1.0, np.float32)}, signature="total")
        (found,) = model.learnt_costs()
        assert found.curve.sizes == (1,)

    with_model(scenario)


def test_once_padding_went_wrong_no_request_is_padded_in_any_bucket() -> None:
    spec = TensorSpec("x", np.dtype(np.float32), (None, None))
    signature = ModelSignature("free", {"x": spec}, {"y": spec})
    padding = ShapePadding({"x": ("n",)}, {"y": ("n",)}, {"x": 0})
    shapes = []

    def run(signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        shapes.append(inputs["x"].shape)
        return {"y": inputs["x"][:, :9]}

    async def scenario(_: Model, loaded: FakeLoadedModel) -> None:
        loaded.signatures, loaded.run = {"free": signature}, run  # type: ignore[method-assign]  # of a fake
        batcher = Batcher([FakeDevice()], WorkConserving(), BatcherOptions(100), clock=asyncio.get_running_loop().time)
        model = Model(
            RequestPlacement("m", 3, loaded, BatchSizes.powers_of_two(8), paddings={"free": padding}), batcher
        )
        for widths in ((3, 5), (9, 10), (3, 5)):
            rows = [{"x": np.ones((1, width), np.float32)} for width in widths]
            await asyncio.gather(*[ask(model, each, signature="free") for each in rows])
        assert shapes == [(2, 5), (2, 10), (1, 9), (1, 10), (1, 3), (1, 5)]

    with_model(scenario)
