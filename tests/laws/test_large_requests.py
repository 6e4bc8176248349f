"""A large request is computed in parts: between two of them everybody else has a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from app.batching.batcher import Batcher
from app.batching.policy import SelfTuning
from app.batching.request import LaneKey
from app.batching.state import BatcherOptions
from app.core.batch_sizes import BatchSizes
from app.core.errors import DeadlineExceeded, InvalidRequest, Overloaded
from app.core.inference import Array, InferenceRequest
from app.pipelines.pipeline_model import PipelineModel
from tests.pipelines.pipeline_world import World, rows_of
from tests.support.fakes import FakeDevice, batch_function, infer, run_in_fake_time

MAX_ROWS = 4

#: A pipeline of one model, which adds one and rejects negative numbers.
ONE_STEP = b"""
steps:
  small: {model: small, inputs: {x: x}}
outputs: {y: small.y}
"""


@dataclass(frozen=True)
class Arrival:
    at_s: float
    lane: int
    rows: int


some_arrivals = st.builds(
    Arrival,
    at_s=st.integers(0, 40).map(lambda tenths: tenths / 10),
    lane=st.integers(0, 1),
    rows=st.sampled_from([1, 2, 3, 4, 9, 17, 30]),
)


@settings(max_examples=200, deadline=None)
@given(arrivals=st.lists(some_arrivals, min_size=2, max_size=12), devices=st.integers(1, 2))
def test_no_request_waits_for_more_than_one_part_of_a_large_one(arrivals: list[Arrival], devices: int) -> None:
    """A part that rides along, as the call is made for the head of the line, costs nobody anything. And every large
    request is answered as a whole."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        calls: list[tuple[float, list[int]]] = []

        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            calls.append((loop.time(), inputs["x"][:, 0].astype(int).tolist()))
            return {"y": inputs["x"] * 2}

        functions = [batch_function(run, MAX_ROWS) for _ in range(2)]
        batcher = Batcher(
            [FakeDevice(1.0, f"fake:{index}") for index in range(devices)],
            SelfTuning(),
            BatcherOptions(1000),
            clock=loop.time,
        )
        start_s = loop.time()

        def arrival_s(number: int) -> float:
            return arrivals[number].at_s + number / 1000  # never just as a device becomes free

        async def client(number: int, arrival: Arrival) -> None:
            await asyncio.sleep(arrival_s(number))
            inputs = {"x": np.full((arrival.rows, 2), float(number), np.float32)}
            key = LaneKey("m", 1, str(arrival.lane))
            answer = await infer(batcher, key, functions[arrival.lane], inputs, arrival.rows)
            np.testing.assert_array_equal(answer.outputs["y"], 2 * inputs["x"])

        await asyncio.gather(*[client(number, arrival) for number, arrival in enumerate(arrivals)])
        large = {number for number, arrival in enumerate(arrivals) if arrival.rows > MAX_ROWS}
        for number in range(len(arrivals)):
            before: list[int] = []
            for at_s, served in calls:
                if number in served:
                    break
                if at_s > start_s + arrival_s(number) and served[0] in large:
                    before.append(served[0])
            assert len(before) == len(set(before)), (number, arrivals, calls)

    run_in_fake_time(main())


@settings(max_examples=200, deadline=None)
@given(arrivals=st.lists(some_arrivals, min_size=1, max_size=12), max_rows=st.sampled_from([5, 10, 1000]))
def test_a_request_of_any_size_that_finds_less_than_half_of_the_queue_taken_is_answered_as_a_whole(
    arrivals: list[Arrival], max_rows: int
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        batcher = Batcher([FakeDevice(1.0)], SelfTuning(), BatcherOptions(max_rows), clock=loop.time)
        function = batch_function(lambda inputs: {"y": inputs["x"] * 2}, MAX_ROWS)

        async def client(number: int, arrival: Arrival) -> None:
            await asyncio.sleep(arrival.at_s + number / 1000)
            inputs = {"x": np.full((arrival.rows, 2), float(number), np.float32)}
            waiting = batcher.queue.room.rows
            try:
                answer = await infer(batcher, LaneKey("m", 1, str(arrival.lane)), function, inputs, arrival.rows)
            except Overloaded:
                assert waiting >= (max_rows + 1) // 2
                assert waiting + arrival.rows > max_rows
            else:
                assert waiting < (max_rows + 1) // 2 or waiting + arrival.rows <= max_rows
                np.testing.assert_array_equal(answer.outputs["y"], 2 * inputs["x"])

        await asyncio.gather(*[client(number, arrival) for number, arrival in enumerate(arrivals)])
        assert (batcher.queue.rows, batcher.queue.bytes, batcher.queue.room.rows) == (0, 0, 0)

    run_in_fake_time(main())


@dataclass(frozen=True)
class Client:
    """leaves_with: it is cancelled as a call of this number ends; 0 for none."""

    at_s: float
    rows: int
    bad_row: int | None
    timeout_s: float
    cancel_after_s: float
    leaves_with: int
    priority: int
    caller: str
    through_pipeline: bool


clients = st.builds(
    Client,
    at_s=st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.5, 4.5]),
    rows=st.sampled_from([0, 1, 2, 3, 4, 9, 17, 30]),
    bad_row=st.sampled_from([None, None, None, 0, 5, 16]),
    timeout_s=st.sampled_from([inf, inf, 1.5, 4.2]),
    cancel_after_s=st.sampled_from([inf, inf, 0.0, 1.2, 3.3]),
    leaves_with=st.sampled_from([0, 0, 1, 2, 4]),
    priority=st.sampled_from([0, 0, 1, -1]),
    caller=st.sampled_from(["", "a", "b"]),
    through_pipeline=st.booleans(),
)


@given(
    schedule=st.lists(clients, min_size=1, max_size=10),
    devices=st.integers(1, 2),
    max_rows=st.sampled_from([10, 40, 1000]),
    max_queue_bytes=st.sampled_from([inf, 8 * 30]),
    fair_callers=st.booleans(),
    preserve_order=st.booleans(),
)
def test_whatever_befalls_a_large_request_its_room_comes_back_as_it_ends(
    schedule: list[Client], devices: int, **options: Any
) -> None:
    """Each is answered as a whole with its own rows, or as one of its parts fails."""

    async def main() -> None:
        world = World(devices=devices, sizes=BatchSizes((1, 2, MAX_ROWS)), **options)
        pipeline = world.load(ONE_STEP)
        playing = [asyncio.create_task(play(world, pipeline, *each)) for each in enumerate(schedule, 1)]
        for each in asyncio.as_completed(playing):
            await each
            left = sum(client.rows or 1 for client, task in zip(schedule, playing, strict=True) if not task.done())
            assert world.batcher.queue.rows <= left, "one that is over still waits"
        await world.end()
        assert not world.batcher.failures(10)
        assert (world.batcher.queue.bytes, world.batcher.queue.room._callers) == (0, {})

    run_in_fake_time(main())


async def play(world: World, pipeline: PipelineModel, number: int, client: Client) -> None:
    x = rows_of(*[100.0 * number + row for row in range(client.rows)])
    bad = client.bad_row is not None and client.bad_row < client.rows
    if bad:
        x[client.bad_row] = -1.0
    await asyncio.sleep(client.at_s)
    model = pipeline if client.through_pipeline else world.find("small")
    deadline_s = world.loop.time() + client.timeout_s
    request = InferenceRequest({"x": x}, deadline_s=deadline_s, priority=client.priority, caller=client.caller)
    task = asyncio.create_task(model.infer(request))
    world.at_end_of(client.leaves_with, task.cancel)
    if client.cancel_after_s < inf:
        world.loop.call_later(client.cancel_after_s, task.cancel)
    (answer,) = await asyncio.gather(task, return_exceptions=True)
    if isinstance(answer, BaseException):
        leaves = client.cancel_after_s < inf or client.leaves_with > 0
        may_be = {InvalidRequest: bad, DeadlineExceeded: client.timeout_s < inf, asyncio.CancelledError: leaves}
        assert isinstance(answer, Overloaded) or may_be[type(answer)]
    else:
        assert not bad
        np.testing.assert_array_equal(answer.outputs["y"], x + 1)
