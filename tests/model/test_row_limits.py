"""Models that take few rows in a call, as requests find them: no warm-up and no probe has seen it.

The oracle is the direct call of each request, or of its rows one by one if the model takes no request as large.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from app.batching.batcher import Batcher
from app.batching.state import BatcherOptions
from app.core.batch_sizes import BatchSizes
from app.core.errors import InvalidRequest
from app.core.events import Event
from app.core.inference import Array, InferenceRequest
from app.model import Model
from app.placement import RequestPlacement
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeDevice, FakeLoadedModel, rows_of, run_in_fake_time

SIZES = BatchSizes.powers_of_two(64)


class Picky(FakeLoadedModel):
    """Doubles rows; rejects a call of which `accepts` says no, and negative values.

    Attributes:
        made: the number of its calls; calls, rejected: the rows of each, until a test begins anew with them.
    """

    def __init__(self, accepts: Callable[[Array], object]) -> None:
        super().__init__()
        self.accepts = accepts
        self.calls: list[int] = []
        self.made = 0
        self.rejected: list[int] = []

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        x = inputs["x"]
        self.calls.append(len(x))
        self.made += 1
        if not self.accepts(x) or (x < 0).any():
            self.rejected.append(len(x))
            raise InvalidRequest("the model rejects this")
        return {"y": x * 2}


def at_most(rows: int) -> Picky:
    return Picky(lambda x: len(x) <= rows)


def distinct(x: Array) -> bool:
    return len(np.unique(x, axis=0)) == len(x)


def of(*values: float) -> dict[str, Array]:
    return {"x": np.repeat(np.array(values, np.float32)[:, None], 2, axis=1)}


def served(loaded: Picky, use: Callable[[Model], Any]) -> Any:
    async def main() -> Any:
        told: list[Event] = []
        batcher = Batcher(
            [FakeDevice()], WorkConserving(), BatcherOptions(10_000), told.append, clock=asyncio.get_running_loop().time
        )
        used = await use(Model(RequestPlacement("m", 3, loaded, SIZES), batcher))
        assert len(told) == loaded.made, "a call was not told"
        return used

    return run_in_fake_time(main())


async def ask(model: Model, inputs: dict[str, Array]) -> Array | InvalidRequest:
    try:
        return (await model.infer(InferenceRequest(inputs))).outputs["y"]
    except InvalidRequest as error:
        return error


async def flood(model: Model, requests: int, rows: int = 1) -> None:
    """Requests that arrive together, each with values of its own."""
    asked = [rows_of(float(number), rows) for number in range(requests)]
    for inputs, answer in zip(asked, await asyncio.gather(*[ask(model, each) for each in asked]), strict=True):
        np.testing.assert_array_equal(answer, inputs["x"] * 2)


@pytest.mark.parametrize("most", [2, 3, 16, 24, 48])
def test_batches_are_of_the_most_rows_that_the_model_takes_once_some_were_rejected(most: int) -> None:
    loaded = at_most(most)

    async def use(model: Model) -> None:
        for _ in range(3):
            await flood(model, 200)
        loaded.calls, loaded.rejected = [], []
        await flood(model, 200)
        assert max(loaded.calls) == most
        assert not loaded.rejected
        assert model.signatures["serving_default"].most_rows == most

    served(loaded, use)


@pytest.mark.parametrize(("most", "rows"), [(16, 100), (24, 20), (24, 30), (24, 64), (2, 3), (48, 500), (3, 7)])
def test_a_request_alone_is_answered_in_parts_whatever_its_rows(most: int, rows: int) -> None:
    loaded = at_most(most)

    async def use(model: Model) -> None:
        inputs = of(*range(rows))
        np.testing.assert_array_equal(await ask(model, inputs), inputs["x"] * 2)
        await flood(model, 20, rows)

    served(loaded, use)


@pytest.mark.parametrize("values", [(1.0, 2.0, 3.0), (1.0, 2.0, 3.0, 4.0, 5.0)])
def test_a_request_alone_is_not_rejected_for_its_padding(values: tuple[float, ...]) -> None:
    """Padding repeats a row, and the model takes no two equal ones."""

    async def use(model: Model) -> None:
        np.testing.assert_array_equal(await ask(model, of(*values)), of(*values)["x"] * 2)

    served(Picky(distinct), use)


@pytest.mark.parametrize(
    ("accepts", "values"),
    [
        (distinct, (1.0, 2.0, 1.0)),
        (distinct, (1.0, 1.0, 2.0, 3.0)),
        (lambda x: True, (1.0, 2.0, -1.0)),
        (lambda x: True, (-1.0, 2.0, 1.0, 3.0)),
        (lambda x: len(x) <= 2, (1.0, -1.0, 2.0)),
        (lambda x: len(x) <= 1, (1.0, 2.0)),
        (lambda x: len(np.unique(np.sign(x - 2.5))) == 1, (1.0, 2.0, 3.0, 4.0)),
    ],
)
def test_values_that_the_model_rejects_are_its_own_refusal(
    accepts: Callable[[Array], object], values: tuple[float, ...]
) -> None:
    loaded = Picky(accepts)

    async def use(model: Model) -> None:
        for _ in range(3):
            assert str(await ask(model, of(*values))) == "the model rejects this"
            assert isinstance(await ask(model, of(1.0)), np.ndarray)

    served(loaded, use)


def test_bad_requests_make_no_limit() -> None:
    loaded = Picky(lambda x: True)

    async def use(model: Model) -> None:
        for turn in range(20):
            asked = [of(-1.0 if (number + turn) % 5 == 0 else float(number)) for number in range(40)]
            for inputs, answer in zip(asked, await asyncio.gather(*[ask(model, each) for each in asked]), strict=True):
                assert isinstance(answer, InvalidRequest) is bool(inputs["x"][0, 0] < 0)
        assert model.signatures["serving_default"].most_rows == 0

    served(loaded, use)


def test_requests_that_do_not_go_together_make_no_limit() -> None:
    """Each is acceptable, and so is any number of equal rows."""
    loaded = Picky(lambda x: len(np.unique(np.sign(x - 2.5))) == 1)

    async def use(model: Model) -> None:
        for _ in range(5):
            answers = await asyncio.gather(*[ask(model, of(float(number % 5))) for number in range(60)])
            assert all(isinstance(each, np.ndarray) for each in answers)
        assert model.signatures["serving_default"].most_rows == 0

    served(loaded, use)


def test_a_limit_that_requests_found_outlives_a_new_placement_and_lets_the_model_close() -> None:
    loaded = at_most(16)

    async def use(model: Model) -> None:
        before = model._placement
        for _ in range(3):
            await flood(model, 100)
        anew = RequestPlacement("m", 3, loaded, SIZES)
        model.adopt(anew)
        assert anew.signatures["serving_default"].most_rows == 16
        loaded.rejected = []
        await flood(model, 100)
        assert not loaded.rejected
        assert not before.open_requests
        await model.close()

    served(loaded, use)


#: Calls beyond one for each of 1,000 bad requests: one of a row for each 33rd, and six before that.
MOST_TRIED = 40


@pytest.mark.parametrize("most", [16, 24, 48])
@pytest.mark.parametrize("bad_rows", [[-1.0] * 64, [1.0] * 63 + [-1.0], [-1.0] + [1.0] * 63])
def test_a_thousand_bad_requests_cost_few_more_calls_and_a_limit_is_still_found(
    most: int, bad_rows: list[float]
) -> None:
    loaded = at_most(most)

    async def use(model: Model) -> None:
        # 1. Bad requests, and among them none that shows how many rows the model takes.
        for _ in range(1000):
            assert isinstance(await ask(model, of(*[-1.0] * 64)), InvalidRequest)
        assert len(loaded.calls) <= 1000 + MOST_TRIED
        assert sum(loaded.calls) <= 1000 * 64 + MOST_TRIED, "a call more than needs to be had more than one row"

        # 2. One that is not all bad may be tried next.
        before = len(loaded.calls)
        assert isinstance(await ask(model, of(*bad_rows)), InvalidRequest)
        assert len(loaded.calls) - before <= 1 + 2 + 6 + 64 / most

        # 3. A good one is answered soon, and from then on each is.
        good = of(*range(64))
        for _ in range(MOST_TRIED):
            if not isinstance(answer := await ask(model, good), InvalidRequest):
                break
        np.testing.assert_array_equal(answer, good["x"] * 2)
        assert model.signatures["serving_default"].most_rows == most
        loaded.rejected = []
        await flood(model, 100)
        assert not loaded.rejected

        # 4. Nothing is searched for any more.
        before = len(loaded.calls)
        for _ in range(100):
            assert isinstance(await ask(model, of(*[-1.0] * most)), InvalidRequest)
        assert len(loaded.calls) == before + 100

    served(loaded, use)


def test_bad_requests_of_other_outputs_share_one_budget() -> None:
    loaded = Picky(lambda x: True)

    async def use(model: Model) -> None:
        for number in range(100):
            request = InferenceRequest(of(*[-1.0] * 64), outputs=("y",) if number % 2 else ())
            with pytest.raises(InvalidRequest):
                await model.infer(request)
        assert len(loaded.calls) <= 100 + 10

    served(loaded, use)
