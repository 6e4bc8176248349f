"""What writing a reply takes is never less than what is reserved for it, and all that was reserved comes back."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from app.codecs.json.predict_documents import encode_predict
from app.core.errors import BodyOverMemory, InferenceFailed, NoMemoryLeft
from app.core.inference import InferenceRequest, TensorSpec
from app.transports.memory.body_room import BodyRoom
from app.transports.memory.client_memory import ClientMemory
from app.transports.memory.reply_room import (
    binary_cost,
    exact_text_cost,
    reserve_now,
    reserve_outputs,
    reserve_reply,
    text_cost,
)
from tests.support.fakes import run_in_fake_time
from tests.transports.http1.connection_world import World, request

MB = 2**20

NUMBERS = st.one_of(
    npst.boolean_dtypes(),
    npst.integer_dtypes(endianness="="),
    npst.unsigned_integer_dtypes(endianness="="),
    npst.floating_dtypes(endianness="=", sizes=(16, 32, 64)),
)


def room_of(left_mb: float) -> ClientMemory:
    return ClientMemory(room=BodyRoom(lambda: (left_mb * 4 / 3 + 40) * MB, lambda: 0.0, later=lambda *_: None))


@given(npst.arrays(NUMBERS, npst.array_shapes(min_dims=1, max_dims=4, max_side=4)))
def test_a_text_is_never_longer_than_what_is_counted_for_it(array: Any) -> None:
    longest = 3 * len(encode_predict({"y": array}, by_row=False, in_slices=True)[len(b'{"outputs":}') :])
    assert longest <= exact_text_cost({"y": array}) <= text_cost({"y": array})


@pytest.mark.parametrize("value", [-1.17549435e-38, -3.4028235e38, -2.2250738585072014e-308, np.nan, -np.inf])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ml_dtypes.bfloat16])
@pytest.mark.filterwarnings("ignore:overflow")
def test_the_longest_numbers_have_no_more_characters_than_are_counted(value: float, dtype: Any) -> None:
    array = np.full((3, 5), value).astype(dtype)
    assert 3 * len(encode_predict({"y": array}, by_row=False)) - 36 <= text_cost({"y": array})


def test_strings_are_counted_with_their_bytes_and_their_objects() -> None:
    strings = {"y": np.array([b"\0" * 100] * 10, object)}
    assert text_cost(strings) == exact_text_cost(strings) >= 3 * len(encode_predict(strings, by_row=False)) + 960
    assert binary_cost(strings) >= 3 * 1000 + 960


def test_without_a_limit_nothing_is_reserved() -> None:
    outputs = {"y": np.zeros(10**6, np.float32)}
    memory = ClientMemory()
    assert asyncio.run(reserve_reply(memory, outputs, text=True)) == 0
    assert reserve_now(memory, outputs) == 0
    assert memory.room.limit == inf


def test_where_the_most_does_not_fit_the_text_is_counted() -> None:
    outputs = {"y": np.zeros((1, 10**6), np.float32)}
    most, exact = text_cost(outputs), exact_text_cost(outputs)
    for room_mb, reserved in [(most / MB + 1, most), (most / MB - 1, exact)]:
        memory = room_of(room_mb)
        assert asyncio.run(reserve_reply(memory, outputs, text=True)) == reserved == memory.room.reserved


def test_what_could_never_be_written_is_refused_for_good_and_what_could_for_now() -> None:
    memory, outputs = room_of(20), {"y": np.zeros((1, 4 * 10**6), np.float32)}
    for text, way in [(True, "To write the reply would take 63 MB"), (False, "To write the reply would take 47 MB")]:
        with pytest.raises(BodyOverMemory, match=way) as error:
            asyncio.run(reserve_reply(memory, outputs, text=text))
        assert "leaves 20 MB for that: send fewer rows at a time in the inputs" in str(error.value)
    assert memory.room.take(15 * MB)
    with pytest.raises(NoMemoryLeft, match="may take 15 of the 20 MB"):
        reserve_now(memory, {"y": np.zeros(500_000, np.float32)})
    assert memory.room.reserved == 15 * MB


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize(("room_mb", "status"), [(100, 200), (1, 413)])
def test_a_long_reply_is_written_only_if_there_is_room_and_the_room_comes_back(
    room_mb: float, status: int, direct: bool
) -> None:
    memory = room_of(room_mb)
    wide = np.full((1, 2**16 + 1), -1.17549435e-38, np.float32)

    async def main() -> None:
        world = World(direct, memory=memory)
        world.loaded.function = lambda _: {"y": wide}
        await world.hear(request(), 3.0)
        for _ in range(1000):
            if world.replies():
                break
            await asyncio.sleep(0.1)
        ((code, _, body),) = world.replies()
        assert code == status
        assert json.loads(body)["predictions" if status == 200 else "error"]
        assert memory.room.reserved == 0

    run_in_fake_time(main())


def wide(rows: int) -> InferenceRequest:
    return InferenceRequest({"x": np.zeros((rows, 2), np.float32)})


def model_of(*shape: int | None) -> Any:
    loaded = World(True).model
    spec = TensorSpec("y", np.dtype("f4"), shape)
    signature = replace(loaded.signatures["serving_default"], outputs={"y": spec})
    return SimpleNamespace(signatures={"serving_default": signature})


def test_outputs_whose_shapes_are_told_are_reserved_before_they_are_computed() -> None:
    async def main() -> None:
        memory = room_of(100)
        assert reserve_outputs(memory, model_of(None, MB), wide(5)) == 2.5 * 20 * MB == memory.room.reserved
        with pytest.raises(NoMemoryLeft, match="To compute the outputs would take 60 MB"):
            reserve_outputs(memory, model_of(None, MB), wide(6))
        with pytest.raises(BodyOverMemory, match=r"leaves 100 MB for that: send fewer rows .* fewer outputs, or give"):
            reserve_outputs(memory, model_of(None, MB), wide(11))
        assert reserve_outputs(memory, model_of(None, 2**10), wide(5)) == 0, "they are few"
        assert reserve_outputs(memory, model_of(None, None), wide(5)) == 0, "nobody knows"
        assert reserve_outputs(ClientMemory(), model_of(None, MB), wide(10**6)) == 0

    run_in_fake_time(main())


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_what_is_reserved_for_outputs_comes_back(direct: bool, fails: bool) -> None:
    memory = room_of(100)

    def compute(inputs: Any) -> Any:
        assert memory.room.reserved == 2.5 * 4 * MB
        if fails:
            raise InferenceFailed("no")
        return {"y": inputs["x"]}

    async def main() -> None:
        world = World(direct, memory=memory)
        world.model.signatures["serving_default"].outputs["y"] = TensorSpec("y", np.dtype("f4"), (None, MB))
        world.loaded.function = compute
        await world.hear(request(), 5.0)
        ((code, _, _),) = world.replies()
        assert code == (500 if fails else 200)
        assert memory.room.reserved == 0

    run_in_fake_time(main())


@pytest.mark.parametrize("direct", [True, False])
def test_what_is_reserved_for_outputs_comes_back_when_their_client_leaves(direct: bool) -> None:
    memory = room_of(100)

    async def main() -> None:
        world = World(direct, memory=memory)
        world.model.signatures["serving_default"].outputs["y"] = TensorSpec("y", np.dtype("f4"), (None, MB))
        await world.hear(request(), 0.5)
        assert memory.room.reserved == 2.5 * 4 * MB
        world.connection.connection_lost(None)
        await asyncio.sleep(5.0)
        assert memory.room.reserved == 0

    run_in_fake_time(main())
