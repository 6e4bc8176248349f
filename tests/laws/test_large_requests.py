"""A large request is computed in parts: between two of them everybody else has a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from app.batching.batcher import Batcher
from app.batching.policy import create_policy
from app.batching.request import LaneKey
from app.core.errors import Overloaded
from app.core.inference import Array
from tests.support.fakes import FakeDevice, batch_function, infer, run_in_fake_time

MAX_ROWS = 4


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
            create_policy("self_tuning"),
            1000,
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
def test_a_request_of_any_size_that_finds_the_queue_empty_is_answered_as_a_whole(
    arrivals: list[Arrival], max_rows: int
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        batcher = Batcher([FakeDevice(1.0)], create_policy("self_tuning"), max_rows, clock=loop.time)
        function = batch_function(lambda inputs: {"y": inputs["x"] * 2}, MAX_ROWS)

        async def client(number: int, arrival: Arrival) -> None:
            await asyncio.sleep(arrival.at_s + number / 1000)
            inputs = {"x": np.full((arrival.rows, 2), float(number), np.float32)}
            waiting = batcher.queue.room.rows
            try:
                answer = await infer(batcher, LaneKey("m", 1, str(arrival.lane)), function, inputs, arrival.rows)
            except Overloaded:
                assert waiting
                assert waiting + arrival.rows > max_rows
            else:
                assert not waiting or waiting + arrival.rows <= max_rows
                np.testing.assert_array_equal(answer.outputs["y"], 2 * inputs["x"])

        await asyncio.gather(*[client(number, arrival) for number, arrival in enumerate(arrivals)])
        assert (batcher.queue.rows, batcher.queue.bytes, batcher.queue.room.rows) == (0, 0, 0)

    run_in_fake_time(main())
