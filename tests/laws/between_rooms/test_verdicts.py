"""What came before changes no verdict: a model that accepted a request judges each later one as if it were the first.

Models remember forms that they accepted. A form that leaves out anything that the check looks at would let the next
request through, or into the call of another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.batch_sizes import BatchSizes
from app.core.errors import ServingError
from app.core.inference import InferenceRequest
from app.core.reply import Answer
from app.placement import RequestPlacement
from tests.every_protocol.models import ContractModel
from tests.pipelines.pipeline_world import TWO, World
from tests.support.fakes import FakeReply, run_in_fake_time

#: Values of what a request may differ in; the first one of each is right for most.
SIGNATURES = ["serving_default", "pair", "single", "image", "none"]
OUTPUTS: Sequence[tuple[str, ...]] = [(), ("doubled",), ("sum",), ("product",), ("sum", "product"), ("none",)]
DTYPES = [np.float32, np.float64, np.int32, np.uint8]
SHAPES: Sequence[tuple[int, ...]] = [(1, 2), (3, 2), (1, 3), (2,), (0, 2), (1, 1, 2), (1, 2, 2)]
INPUTS: Sequence[tuple[str, ...]] = [("features",), ("left", "right"), ("left",), ("x",), ("features", "right")]

requests = st.tuples(
    st.sampled_from(SIGNATURES),
    st.sampled_from(OUTPUTS),
    st.sampled_from([DTYPES[0], DTYPES[0], *DTYPES]),
    st.sampled_from([SHAPES[0], SHAPES[0], *SHAPES]),
    st.sampled_from([INPUTS[0], INPUTS[1], *INPUTS]),
)


def request_of(signature: str, outputs: tuple[str, ...], dtype: Any, shape: tuple[int, ...], names: Any) -> Any:
    return InferenceRequest({name: np.ones(shape, dtype) for name in names}, signature, outputs)


def placement() -> RequestPlacement:
    return RequestPlacement("m", 1, ContractModel(), BatchSizes((1, 2, 4)), generation=1)


def verdict(place: Callable[[InferenceRequest], Any], request: InferenceRequest) -> Any:
    try:
        return place(request)
    except ServingError as error:
        return type(error), str(error)


def placed(model: RequestPlacement) -> Callable[[InferenceRequest], Any]:
    def place(request: InferenceRequest) -> Any:
        key, _, rows = model.place(request)
        return key, rows

    return place


@settings(max_examples=100, deadline=None)
@given(schedule=st.lists(requests, min_size=2, max_size=12))
def test_a_model_judges_each_request_as_if_it_were_the_first(schedule: list[Any]) -> None:
    model = placement()
    for each in schedule:
        fresh = verdict(placed(placement()), request_of(*each))
        assert verdict(placed(model), request_of(*each)) == fresh, each


@pytest.mark.parametrize("signature", ["serving_default", "pair", "single", "image"])
def test_of_two_requests_that_differ_in_one_thing_the_first_changes_nothing_for_the_second(signature: str) -> None:
    """All pairs, from each of a few requests that are accepted."""
    names = ("left", "right") if signature == "pair" else ("features",)
    shape = (1, 1, 2) if signature == "image" else (1, 2)
    right = (signature, (), np.float32, shape, names)
    values = (SIGNATURES, OUTPUTS, DTYPES, SHAPES, INPUTS)
    others = [(*right[:n], value, *right[n + 1 :]) for n, each in enumerate(values) for value in each]
    for other in others:
        model = placement()
        assert not isinstance(verdict(placed(model), request_of(*right))[0], type)
        assert verdict(placed(model), request_of(*other)) == verdict(placed(placement()), request_of(*other)), other


def test_a_pipeline_judges_each_request_as_if_it_were_the_first() -> None:
    """And gives the outputs that each asked for, also to those of one turn."""
    choices = [
        (outputs, dtype, shape)
        for outputs in ((), ("small",), ("big",), ("big", "small"), ("none",))
        for dtype in (np.float32, np.float64)
        for shape in ((1, 2), (2, 2), (1, 3))
    ]

    async def ask(world: World, model: Any, asked: Sequence[Any]) -> list[Any]:
        replies = []
        for outputs, dtype, shape in asked:
            reply = FakeReply()
            try:
                model.submit(InferenceRequest({"x": np.ones(shape, dtype)}, outputs=outputs), reply)
            except ServingError as error:
                reply.set_exception(error)
            replies.append(reply)
        await world.batcher.drain()
        return [
            {name: output.shape for name, output in each.outputs.items()}
            if isinstance(each, Answer)
            else (type(each), str(each))
            for (each,) in [reply.answers for reply in replies]
        ]

    def play(asked: Sequence[Any]) -> list[Any]:
        async def main() -> list[Any]:
            world = World()
            return await ask(world, world.load(TWO), asked)

        return run_in_fake_time(main())

    alone = [play([each])[0] for each in choices]
    assert play(choices) == alone
    assert play(choices[::-1]) == alone[::-1]
