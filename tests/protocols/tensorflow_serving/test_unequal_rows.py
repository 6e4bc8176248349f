"""Rows of different length in one JSON request, to a model whose requests are padded; the oracle is each row alone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.batcher import Batcher
from app.batching.shapes.padding import ShapePadding
from app.batching.state import BatcherOptions
from app.core.batch_sizes import BatchSizes
from app.core.errors import InvalidRequest
from app.core.events import BatchExecuted, Event
from app.core.inference import STRING, Array, ModelSignature
from app.model import Model
from app.placement import RequestPlacement
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeDevice, FakeLoadedModel, run_in_fake_time
from tests.support.protocol_fakes import Answer, Client, FakeRepository, specs

Body = dict[str, Any]


def compute(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Token 0 is padding: `each` follows the length, `total` does not, `name` is text."""
    tokens = inputs["tokens"]
    if (tokens < 0).any():
        raise InvalidRequest("tokens must not be negative")
    totals = tokens.sum(axis=1)
    names = np.array([str(total).encode() for total in totals], STRING)
    return {"each": tokens * np.float32(2), "total": totals, "name": names}


class World:
    """A server of one model that takes tokens [batch, length] and may pad them."""

    def __init__(self, *, padded: bool = True, queue_rows: int = 100) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.events: list[Event] = []
        inputs = specs(tokens=("float32", (None, None)))
        outputs = specs(each=("float32", (None, None)), total=("float32", (None,)), name=("string", (None,)))
        loaded = FakeLoadedModel()
        loaded.signatures = {"serving_default": ModelSignature("serving_default", inputs, outputs)}
        loaded.run = self._run  # type: ignore[method-assign]  # of a fake
        names = {"each": ("n",), "total": (), "name": ()}
        padding = ShapePadding({"tokens": ("n",)}, names, {"tokens": 0}, call_cells=1e6)
        paddings = {"serving_default": padding} if padded else {}
        clock = asyncio.get_running_loop().time
        self.batcher = Batcher([FakeDevice()], WorkConserving(), BatcherOptions(queue_rows), self.events.append, clock)
        placement = RequestPlacement("m", 1, loaded, BatchSizes.powers_of_two(16), paddings=paddings)
        self.client = Client(repository=FakeRepository(cast(Any, Model(placement, self.batcher))))

    def _run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        self.shapes.append(inputs["tokens"].shape)
        return compute(inputs)

    async def predict(self, body: Body, headers: Mapping[str, str] = {}) -> Answer:
        return await self.client.request("POST", "/v1/models/m:predict", body, headers)


def asked(*bodies: Body, **more: Any) -> tuple[World, list[Answer]]:
    """All at once."""

    async def main() -> tuple[World, list[Answer]]:
        world = World(**more)
        return world, await asyncio.gather(*[world.predict(body) for body in bodies])

    return run_in_fake_time(main())


def alone(row: Sequence[float]) -> dict[str, Any]:
    """What the model says of a row by itself."""
    outputs = compute({"tokens": np.array([row], np.float32)})
    return {"each": outputs["each"][0].tolist(), "total": outputs["total"][0], "name": outputs["name"][0].decode()}


lengths = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=20), min_size=1, max_size=12)


@given(lengths)
def test_each_row_is_answered_as_if_alone_in_the_order_in_which_it_came(rows: list[list[int]]) -> None:
    _, (named, bare, columns, column) = asked(
        {"instances": [{"tokens": row} for row in rows]},
        {"instances": rows},
        {"inputs": {"tokens": rows}},
        {"inputs": rows},
    )
    expected = [alone(row) for row in rows]
    assert named.json() == bare.json() == {"predictions": expected}
    assert (
        columns.json()
        == column.json()
        == {"outputs": {name: [row[name] for row in expected] for name in ("each", "total", "name")}}
    )


def test_rows_of_different_length_share_a_call() -> None:
    world, (answer,) = asked({"instances": [[1, 2, 3], [4, 5], [6, 7, 8]]})
    assert answer.status == 200
    assert world.shapes == [(4, 3)]
    (batch,) = [event for event in world.events if isinstance(event, BatchExecuted)]
    assert (batch.rows, len(batch.queue_s)) == (3, 2)


def test_names_that_the_signature_lacks_are_ignored_as_ever() -> None:
    _, (answer,) = asked({"inputs": {"tokens": [[1, 2, 3], [4, 5]], "other": 7}})
    assert answer.json()["outputs"]["total"] == [6, 9]


def test_wide_rows_too() -> None:
    rows = [list(range(1, 2000)), list(range(1, 1000)), list(range(1, 2000))]
    _, (answer, columns) = asked({"instances": [{"tokens": row} for row in rows]}, {"inputs": rows})
    assert answer.json() == {"predictions": [alone(row) for row in rows]}
    assert columns.json()["outputs"]["total"] == [sum(row) for row in rows]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            {"instances": [[1, 2, 3], [4, 5]]},
            "element: 1 of 'instances' list. Error: INVALID_ARGUMENT: Expecting tensor",
        ),
        ({"inputs": {"tokens": [[1, 2, 3], [4, 5]]}}, "'tokens': Encountered list at unexpected size: 2"),
    ],
)
def test_where_the_model_does_not_pad_they_are_rejected_as_ever(body: Body, text: str) -> None:
    world, (answer,) = asked(body, padded=False)
    assert answer.status == 400
    assert text in answer.error
    assert world.shapes == []


@pytest.mark.parametrize(
    "body",
    [
        {"instances": [[1, 2], [[3], [4]]]},  # of another rank
        {"instances": [[1, 2], [3, [4]]]},  # not rectangular in itself
        {"instances": [[1, 2], [3, "x"]]},  # no number
        {"instances": [[1, 2], 3]},
        {"instances": [{"tokens": [1, 2]}, {"words": [3]}]},
        {"instances": [{"tokens": [1, 2]}, [3]]},
        {"inputs": {"tokens": [[1, 2], 3]}},
        {"inputs": {"tokens": [[1, 2], [3, [4]]]}},
        {"inputs": {"words": [[1, 2], [3]]}},
        {"inputs": [[1, 2], [3, "x"]]},
        {"inputs": 1},
        {"instances": []},
        {"instances": [[1, 2], [3]], "inputs": [[1, 2], [3]]},
        {},
    ],
)
def test_what_is_wrong_beside_is_rejected_as_by_a_model_that_does_not_pad(body: Body) -> None:
    world, (answer,) = asked(body)
    _, (expected,) = asked(body, padded=False)
    assert (answer.status, answer.error) == (400, expected.error)
    assert world.shapes == []


def test_a_row_that_the_model_rejects_fails_the_request_and_no_neighbour() -> None:
    _, (bad, good) = asked({"instances": [[1, 2, 3], [-4, 5], [6]]}, {"instances": [[7], [8, 9]]})
    assert (bad.status, bad.error) == (400, "tokens must not be negative")
    assert good.json() == {"predictions": [alone([7]), alone([8, 9])]}


def test_where_not_all_rows_find_room_none_is_computed() -> None:
    world, (answer,) = asked({"instances": [[1, 2, 3], [4, 5], [6]]}, queue_rows=2)
    assert answer.status == 503
    assert world.shapes == []
    assert world.batcher.queue.rows == 0


def test_a_client_that_leaves_takes_all_its_rows_along() -> None:
    async def main() -> None:
        world = World()
        blocker = asyncio.create_task(world.predict({"instances": [[1]]}))
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(world.predict({"instances": [[1, 2, 3], [4, 5]]}))
        await asyncio.sleep(0.1)
        assert world.batcher.queue.rows == 2
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert world.batcher.queue.rows == 0
        await blocker
        assert world.shapes == [(1, 1)]

    run_in_fake_time(main())


def test_other_formats_of_replies_cannot_carry_them() -> None:
    async def main() -> None:
        world = World()
        answer = await world.predict({"instances": [[1, 2, 3], [4, 5]]}, {"accept": "application/msgpack"})
        assert answer.status == 400

    run_in_fake_time(main())
