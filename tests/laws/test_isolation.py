"""The laws of isolation: bounded calls, good requests first, and no failure blamed on another request."""

from __future__ import annotations

import asyncio
from collections import Counter
from math import log2

from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.batching.batcher import Batcher
from app.batching.state import BatcherOptions
from app.core.errors import InvalidRequest, ServingError
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import (
    KEY,
    FakeDevice,
    FakeFunction,
    batch_function,
    infer,
    pending,
    rows_of,
    run_batch,
    run_in_fake_time,
)


def spread(bad: int, size: int) -> list[bool]:
    return [number * bad // size != (number - 1) * bad // size for number in range(size)]


def most_calls(size: int, bad: int) -> float:
    """Of a batch of `size` requests, `bad` of them bad."""
    if not bad or size == 1:
        return 1
    return min(size + 3 * size.bit_length(), 3 + bad * (2 * log2(size / bad) + 4))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=128) | st.permutations(spread(3, 100)))
@example(spread(32, 64))
@example(spread(8, 64))
@example([True] * 64)
@example([False] * 32 + [True] * 32)
def test_a_batch_with_bad_requests_takes_few_calls_and_each_request_gets_its_own_outcome(bad: list[bool]) -> None:
    model = FakeFunction()
    values = [-(number + 1.0) if is_bad else number + 1.0 for number, is_bad in enumerate(bad)]
    outcomes, calls = run_batch(batch_function(model, 128), [pending(value) for value in values])
    assert calls == len(model.calls) <= most_calls(len(bad), sum(bad))
    for value, outcome in zip(values, outcomes, strict=True):
        if value < 0:
            assert isinstance(outcome, InvalidRequest)
            assert str(outcome).endswith(f"got {value:g}")
        else:
            assert isinstance(outcome, dict)
            assert outcome["y"].tolist() == [[2 * value, 2 * value]]


def test_the_calls_that_halving_to_the_end_took_are_never_taken() -> None:
    calls = {
        bad: run_batch(
            batch_function(FakeFunction(), 64), [pending(-1.0 if each else 1.0) for each in spread(bad, 64)]
        )[1]
        for bad in (1, 8, 32, 64)
    }
    assert calls[1] <= 17  # halving: 13
    assert calls[8] <= 50  # 63
    assert calls[32] <= 80  # 127
    assert calls[64] <= 72  # 127


@given(st.integers(1, 64), st.integers(1, 64))
def test_a_lack_of_memory_costs_a_call_for_each_halving_and_then_no_more(size: int, memory_rows: int) -> None:
    model = FakeFunction(memory_rows)
    _, calls = run_batch(batch_function(model, 64), [pending(1.0)] * 0 + [pending(float(each)) for each in range(size)])
    halvings = sum(len(call) > memory_rows for call in model.calls)
    assert halvings <= log2(size) + 1
    assert calls <= halvings + 2 * size / max(1, memory_rows // 4) + 1


def test_of_more_bad_requests_than_can_be_found_the_isolated_are_bounded_and_in_time() -> None:
    """A bad row in every 32, for 3 s: to find them takes three times the calls that the device can make."""
    outcomes, isolated = Counter[str](), list[int]()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        batcher = Batcher([FakeDevice(0.010)], WorkConserving(), BatcherOptions(128), clock=loop.time)
        function = batch_function(FakeFunction(), 64)

        async def ask(value: float) -> None:
            try:
                await infer(batcher, KEY, function, rows_of(value), 1, loop.time() + 2.0)
            except ServingError as error:
                outcomes[type(error).__name__] += 1
            else:
                outcomes["answered"] += 1

        async with asyncio.TaskGroup() as asked:
            for _ in range(150):
                for number in range(32):
                    asked.create_task(ask(-1.0 if number == 31 else 1.0))
                await asyncio.sleep(0.020)
                isolated.append(function.requests_under_way)
        assert batcher.queue.room.rows == 0

    run_in_fake_time(main())
    assert max(isolated) <= 128 + 64, "of the queue, and of the batch in flight"
    assert outcomes.keys() <= {"answered", "InvalidRequest", "Overloaded"}
    assert outcomes["answered"] > 150 * 32 / 2


def test_a_good_half_is_answered_by_the_second_call() -> None:
    model = FakeFunction()
    run_batch(batch_function(model, 64), [pending(1.0 + each) for each in range(63)] + [pending(-1.0)])
    assert model.calls[1] == [1.0 + each for each in range(32)]
