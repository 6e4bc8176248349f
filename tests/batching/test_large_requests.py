import asyncio
from collections.abc import Mapping, Sequence
from math import inf
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.batcher import Batcher
from app.batching.large_requests import cut, join
from app.batching.request import LaneKey, PendingRequest
from app.batching.shapes.ragged import RaggedRows
from app.batching.state import BatcherOptions
from app.core.errors import InferenceFailed
from app.core.inference import Array, BatchTiming
from app.core.reply import Answer
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import (
    FakeDevice,
    FakeFunction,
    FakeReply,
    batch_function,
    pending,
    request_now,
    rows_of,
    run_in_fake_time,
)
from tests.support.garbage import garbage


def answer(values: list[list[float]], queue_s: float = 0.0) -> Answer:
    return Answer({"y": np.array(values, np.float32)}, BatchTiming(queue_s, 1.0, len(values)))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.randoms())
def test_cut_and_answered_in_any_order_is_the_whole(sizes: list[int], random: Random) -> None:
    x = np.arange(2 * sum(sizes), dtype=np.float32).reshape(-1, 2)
    whole = PendingRequest({"x": x}, len(x), reply := FakeReply(), arrival_s=1.0, deadline_s=9.0, priority_offset_s=0.1)
    parts = [cut(whole, rows) for rows in sizes]
    assert [part.rows for part in parts] == sizes
    assert {(part.arrival_s, part.deadline_s, part.priority_offset_s) for part in parts} == {(1.0, 9.0, 0.1)}
    random.shuffle(parts)
    for part in parts:
        assert not part.reply.done()
        part.reply.set_result(answer(part.inputs["x"].tolist()))
    (found,) = reply.answers
    assert isinstance(found, Answer)
    np.testing.assert_array_equal(found.outputs["y"], x)
    assert whole.reply.done()
    assert whole.inputs == {}


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.data())
def test_ragged_rows_are_cut_and_joined_with_their_own_values(lengths: list[int], data: st.DataObject) -> None:
    rows = len(lengths)
    inputs = {
        "words": np.arange(sum(lengths), dtype=np.int64),
        "splits": np.cumsum([0, *lengths], dtype=np.int64),
        "dense": np.arange(rows, dtype=np.float32),
    }
    ragged_inputs, ragged_outputs = RaggedRows({"words": ["splits"]}), RaggedRows({"doubles": ["ends"]})
    whole = PendingRequest(dict(inputs), rows, reply := FakeReply(), 0.0)
    parts = []
    while whole.rows:
        some = data.draw(st.integers(1, whole.rows))
        parts.append(cut(whole, some, ragged_inputs, ragged_outputs))
    for part in parts:
        assert ragged_inputs.misfit(part.inputs, part.rows) == ""
        doubles = {"doubles": part.inputs["words"] * 2, "ends": part.inputs["splits"], "dense": part.inputs["dense"]}
        part.reply.set_result(Answer(doubles, BatchTiming()))
    (found,) = reply.answers
    assert isinstance(found, Answer)
    expected = {"doubles": inputs["words"] * 2, "ends": inputs["splits"], "dense": inputs["dense"]}
    assert {name: array.tolist() for name, array in found.outputs.items()} == {
        name: array.tolist() for name, array in expected.items()
    }


def test_a_part_of_ragged_rows_costs_its_own_rows_and_none_of_the_rest() -> None:
    class Counting(RaggedRows):
        def part(self, inputs: Mapping[str, Array], start: int, end: int) -> dict[str, Array]:
            cut_rows.append(end - start)
            return super().part(inputs, start, end)

    cut_rows: list[int] = []
    splits = np.arange(101, dtype=np.int64)
    whole = PendingRequest({"words": splits[1:], "splits": splits}, 100, FakeReply(), 0.0)
    while whole.rows:
        cut(whole, min(8, whole.rows), Counting({"words": ["splits"]}))
        assert whole.inputs["splits"] is splits
    assert sum(cut_rows) == 100


def test_what_is_not_cut_off_yet_is_waited_for() -> None:
    whole = pending(rows=3)
    part = cut(whole, 2)
    part.reply.set_result(answer([[1.0], [1.0]]))
    assert not whole.reply.done()
    assert whole.rows == 1
    cut(whole, 1).reply.set_result(answer([[1.0]]))
    assert whole.reply.done()


def test_one_part_that_fails_answers_for_all() -> None:
    whole = PendingRequest(rows_of(1.0, 2), 2, reply := FakeReply(), 0.0, inf)
    first, second = cut(whole, 1), cut(whole, 1)
    error = InferenceFailed("no")
    first.reply.set_exception(error)
    assert reply.answers == [error]
    assert second.reply.done()
    assert whole.inputs == {}


def test_the_timing_of_the_whole() -> None:
    joined = join([answer([[1.0]], 0.5), answer([[2.0], [3.0]], 2.0)], [1, 2])
    assert joined.timing == BatchTiming(2.0, 2.0, 2)


@pytest.mark.parametrize("second", [[[1.0, 2.0]], [[1.0], [2.0]], []])
def test_parts_that_do_not_fit_together_are_rejected(second: list[list[float]]) -> None:
    whole = PendingRequest({}, 2, reply := FakeReply(), 0.0)
    parts = [cut(whole, 1), cut(whole, 1)]
    parts[0].reply.set_result(answer([[1.0]]))
    parts[1].reply.set_result(answer(second))
    (error,) = reply.answers
    assert isinstance(error, InferenceFailed)
    assert str(error).endswith("send at most 1 rows")


def test_parts_are_of_the_caller_of_the_whole_and_answered_once() -> None:
    whole = PendingRequest(rows_of(1.0, 3), 3, reply := FakeReply(), 0.0, caller="caller")
    parts = [cut(whole, 1), cut(whole, 2)]
    assert {part.caller for part in parts} == {"caller"}
    whole.fail(error := InferenceFailed("its time ran out"))
    for part in parts:
        assert part.reply.done()
    parts[0].reply.set_exception(InferenceFailed("later"))
    assert reply.answers == [error]


@pytest.mark.parametrize("shapes", [[(1, 2), (2, 3)], [(1, 2), (1, 2)], [(1,), (2, 1)], [(1,), ()]])
def test_outputs_that_are_not_rows_of_one_shape_are_not_joined(shapes: list[tuple[int, ...]]) -> None:
    answers = [Answer({"y": np.zeros(shape)}, BatchTiming()) for shape in shapes]
    with pytest.raises(InferenceFailed, match="or differ in inner shape: send at most 2 rows"):
        join(answers, [1, 2])


@pytest.mark.parametrize("end", ["answered", "expired", "cancelled"])
def test_however_it_ends_nothing_is_left_for_the_collector(end: str) -> None:
    """Its arrays would stay until then: 24 MB for each request of 100,000 rows whose time was over in the queue."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        batcher = Batcher([FakeDevice(1.0)], WorkConserving(), BatcherOptions(100), clock=loop.time)
        function, key = batch_function(FakeFunction()), LaneKey("m", 1, "f")
        deadline_s = loop.time() + (2.5 if end == "expired" else inf)
        handle = batcher.submit(
            key, function, request_now(batcher, rows_of(1.0, 20), 20, FakeReply(), deadline_s=deadline_s)
        )
        await asyncio.sleep(2.1)  # in its third call
        if end == "cancelled":
            handle.cancel()
        await asyncio.sleep(20.0)
        await batcher.drain()

    with garbage() as left:
        run_in_fake_time(main())
    assert left["PendingRequest"] == left["Parts"] == 0


def column(values: Sequence[float]) -> dict[str, Array]:
    return {"x": np.array(values, np.float32)[:, np.newaxis]}


def dropping(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Rows of negative numbers have no answer, and an equal row has none again."""
    x = inputs["x"]
    return {"y": np.unique(x[x[:, 0] >= 0], axis=0)}


@pytest.mark.parametrize("inline_s", [0.0, 10.0])
@pytest.mark.parametrize("devices", [1, 3])
def test_a_large_request_whose_outputs_do_not_follow_the_rows_is_one_call_of_all_its_rows(
    devices: int, inline_s: float
) -> None:
    """The oracle is the model's own answer to the whole."""

    async def main() -> None:
        model = FakeFunction()
        function = batch_function(model, 4)
        calls: list[int] = []

        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            calls.append(len(inputs["x"]))
            return dropping(inputs)

        function.run = run
        batcher = Batcher(
            [FakeDevice(hardware=number) for number in range(devices)],
            WorkConserving(),
            BatcherOptions(1000, max_inline_s=inline_s),
            clock=asyncio.get_running_loop().time,
        )
        # Fitting parts come first, equal rows are in different parts, and others wait behind the large ones.
        large = [[*range(12), -1.0, 3.0, 5.0, -2.0, 7.0], [*range(20)], [1.0, 2.0], [*range(9), -1.0]]
        replies = [FakeReply() for _ in large]
        for values, reply in zip(large, replies, strict=True):
            batcher.submit(LaneKey("m", 1, "s"), function, request_now(batcher, column(values), len(values), reply))
        await batcher.drain()
        for values, reply in zip(large, replies, strict=True):
            (found,) = reply.answers
            assert isinstance(found, Answer), found
            assert found.outputs["y"].tolist() == dropping(column(values))["y"].tolist()
        assert calls.count(17) == 1, "no part of it, and no second time"
        assert not function.requests_under_way
        assert (batcher.queue.rows, batcher.queue.bytes, batcher.queue.room.rows) == (0, 0, 0)

    run_in_fake_time(main())


def test_what_is_stopped_while_its_parts_are_computed_is_one_call_of_all_its_rows() -> None:
    """As by a shadow check that found that rows see each other."""

    async def main() -> None:
        model = FakeFunction()
        function = batch_function(model, 4)
        batcher = Batcher(
            [FakeDevice(1.0)], WorkConserving(), BatcherOptions(1000), clock=asyncio.get_running_loop().time
        )
        values = [float(number) for number in range(10)]
        batcher.submit(LaneKey("m", 1, "s"), function, request_now(batcher, column(values), 10, reply := FakeReply()))
        await asyncio.sleep(1.5)  # in its second call
        function.batchable = function.divisible = False
        await batcher.drain()
        (found,) = reply.answers
        assert isinstance(found, Answer)
        assert found.timing.rows == 10
        assert [len(call) for call in model.calls] == [4, 4, 10]
        assert not function.requests_under_way

    run_in_fake_time(main())
