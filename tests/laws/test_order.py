"""With several batches under way and `preserve_order`, the requests of a lane are answered in the order in which they
came, under random arrivals, durations and deadlines; nobody is lost, and nobody waits for longer than those before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle
from math import inf
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.batching.batcher import Batcher
from app.batching.policy import BatchingOptions
from app.batching.request import LaneKey
from app.batching.state import BatcherOptions
from app.core.errors import DeadlineExceeded, ServingError
from app.core.inference import Array
from app.core.reply import Answer
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import (
    FakeDevice,
    FakeFunction,
    FakeReply,
    batch_function,
    fake_time,
    infer,
    request_now,
    run_in_fake_time,
)

T = TypeVar("T")

MAX_ROWS = 4


class Durations:
    """How long each batch takes on whatever device; `now` is that of the one that computes, 0 on the event loop."""

    def __init__(self, seconds: list[float]) -> None:
        self._seconds = cycle(seconds)
        self.now = 0.0

    def next(self) -> float:
        self.now = next(self._seconds)
        return self.now


class UnevenDevice(FakeDevice):
    """Each batch takes another time."""

    def __init__(self, durations: Durations, name: str) -> None:
        super().__init__(0.0, name)
        self.durations = durations

    def start(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        self.seconds = self.durations.next()
        super().start(work, done)
        self.durations.now = 0.0


@dataclass(frozen=True)
class Call:
    at_s: float
    lane: int
    rows: int
    timeout_s: float


class Client(FakeReply):
    """Who sent a call, the reply that it got, when, and as which of all."""

    def __init__(self, number: int, call: Call, told: list[Client]) -> None:
        super().__init__()
        self.number, self.call, self.told = number, call, told
        self.deadline_s = self.ended_s = self.told_s = inf

    def set_result(self, result: object, /) -> None:
        super().set_result(result)
        self.told_s = fake_time()
        self.told.append(self)

    set_exception = set_result


def play(calls: list[Call], devices: int, durations: list[float], inline_s: float) -> list[Client]:
    """Everyone's reply, in the order in which they were given."""

    async def main() -> list[Client]:
        loop = asyncio.get_running_loop()
        told: list[Client] = []
        clients = [Client(number, call, told) for number, call in enumerate(calls)]
        uneven = Durations(durations)
        workers = [UnevenDevice(uneven, f"fake:{index}") for index in range(devices)]

        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            for value in set(inputs["x"][:, 0].tolist()):
                clients[int(value)].ended_s = loop.time() + uneven.now
            return FakeFunction()(inputs)

        functions = [batch_function(run, MAX_ROWS) for _ in range(2)]
        batcher = Batcher(
            workers,
            WorkConserving(),
            BatcherOptions(1000, max_inline_s=inline_s, admission=False, preserve_order=True),
            clock=loop.time,
        )

        def send(client: Client) -> None:
            call = client.call
            inputs = {"x": np.full((call.rows, 2), client.number, np.float32)}
            key = LaneKey("m", 1, str(call.lane))
            client.deadline_s = loop.time() + call.timeout_s
            try:
                batcher.submit(
                    key,
                    functions[call.lane],
                    request_now(batcher, inputs, call.rows, client, deadline_s=client.deadline_s),
                )
            except ServingError as error:
                client.set_exception(error)

        for client in clients:
            loop.call_later(client.call.at_s + client.number / 1000, send, client)
        await asyncio.sleep(100)
        await batcher.drain()
        assert not batcher.completion.order
        return told

    return run_in_fake_time(main())


some_calls = st.builds(
    Call,
    at_s=st.integers(0, 20).map(lambda tenths: tenths / 10),
    lane=st.integers(0, 1),
    rows=st.integers(1, MAX_ROWS),
    timeout_s=st.sampled_from([inf, inf, 0.7, 3.0]),
)


@settings(max_examples=200, deadline=None)
@given(
    calls=st.lists(some_calls, min_size=2, max_size=16),
    devices=st.integers(2, 3),
    durations=st.lists(st.sampled_from([0.1, 0.5, 2.0, 9.0]), min_size=1, max_size=8),
    inline_s=st.sampled_from([0.0, 0.2]),
)
def test_a_lane_is_answered_in_the_order_in_which_it_came(
    calls: list[Call], devices: int, durations: list[float], inline_s: float
) -> None:
    told = play(calls, devices, durations, inline_s)
    assert sorted(client.number for client in told) == list(range(len(calls)))  # everyone, once
    assert all(len(client.answers) == 1 for client in told)
    for lane in (0, 1):
        of_lane = [client for client in told if client.call.lane == lane]
        answered = [client for client in of_lane if isinstance(client.answers[0], Answer)]
        assert answered == sorted(answered, key=arrival)
        before_s = 0.0
        for client in sorted(of_lane, key=arrival):
            answer = client.answers[0]
            if isinstance(answer, Answer):  # as soon as it was computed and those before were answered
                assert client.told_s == pytest.approx(max(client.ended_s, before_s))
                expected = np.full((client.call.rows, 2), 2 * client.number, np.float32)
                np.testing.assert_array_equal(answer.outputs["y"], expected)
            else:
                assert isinstance(answer, DeadlineExceeded)
                assert client.told_s == pytest.approx(client.deadline_s)  # at once, also while devices are busy
            before_s = max(before_s, client.told_s)


def arrival(client: Client) -> tuple[float, int]:
    return client.call.at_s, client.number


def test_without_it_the_first_batch_that_ends_is_answered_first() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        answered: dict[bool, list[str]] = {}
        for in_order in (False, True):
            workers = [FakeDevice(5.0, "slow"), FakeDevice(1.0, "quick")]
            batcher = Batcher(
                workers,
                WorkConserving(BatchingOptions(max_batch_size=1)),
                BatcherOptions(10, preserve_order=in_order, admission=False),
                clock=loop.time,
            )
            function, order = batch_function(FakeFunction()), answered.setdefault(in_order, [])

            async def client(
                name: str, batcher: Batcher = batcher, function: Any = function, order: Any = order
            ) -> None:
                await infer(batcher, LaneKey("m", 1, "f"), function, {"x": np.ones((1, 2), np.float32)}, 1)
                order.append(name)

            await asyncio.gather(client("first"), client("second"))
        assert answered == {False: ["second", "first"], True: ["first", "second"]}

    run_in_fake_time(main())


def test_a_stuck_request_holds_no_other_beyond_its_deadline() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        workers = [FakeDevice(1000.0, "stuck"), FakeDevice(1.0, "quick")]
        batcher = Batcher(
            workers,
            WorkConserving(BatchingOptions(max_batch_size=1)),
            BatcherOptions(10, preserve_order=True, admission=False),
            clock=loop.time,
        )
        function = batch_function(FakeFunction())

        async def client(timeout_s: float) -> tuple[float, str]:
            try:
                inputs = {"x": np.ones((1, 2), np.float32)}
                await infer(batcher, LaneKey("m", 1, "f"), function, inputs, 1, loop.time() + timeout_s)
            except DeadlineExceeded:
                return loop.time() - start_s, "expired"
            return loop.time() - start_s, "answered"

        outcomes = list(await asyncio.gather(client(20.0), client(inf)))
        assert outcomes == [(20.0, "expired"), (20.0, "answered")]

    run_in_fake_time(main())


def test_a_coalesced_request_waits_for_an_earlier_batch_as_any_other() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        workers = [FakeDevice(5.0, "slow"), FakeDevice(1.0, "quick")]
        policy = WorkConserving()
        batcher = Batcher(workers, policy, BatcherOptions(10, max_inline_s=2.0, preserve_order=True), clock=loop.time)
        function, key, inputs = batch_function(FakeFunction(), 1), LaneKey("m", 1, "f"), {"x": np.ones((1, 2))}
        both = [asyncio.create_task(infer(batcher, key, function, inputs, 1)) for _ in range(2)]
        await asyncio.sleep(2.0)  # the second was quick, and waits for the first
        reply = loop.create_future()
        assert (
            batcher.submit_coalesced(key, function, request_now(batcher, inputs, 1, reply, arrivals_s=[loop.time()]))
            is not None
        )
        await asyncio.sleep(2.0)
        assert not reply.done()
        await reply
        assert loop.time() - start_s == 5.0
        await asyncio.gather(*both)

    run_in_fake_time(main())
