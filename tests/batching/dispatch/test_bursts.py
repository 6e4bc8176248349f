"""Short calls wait for the end of a burst; nothing else does, and nothing waits for long."""

from __future__ import annotations

import pytest

from app.batching.request import LaneKey
from app.core.burst import LONGEST_S
from bench.simulator.simulated_time import work
from tests.batching.batcher.batcher_bench import QUICK, Bench, scenario, turns
from tests.support.fakes import batch_function


def short(bench: Bench, seconds: float = 0.001) -> None:
    """Calls are known to take so long."""
    bench.function = batch_function(bench.model, initial_estimates=dict.fromkeys(QUICK, seconds))


@pytest.mark.parametrize("inline_s", [0.0, 2.0])
def test_a_short_call_waits_for_the_burst(inline_s: float) -> None:
    async def main() -> None:
        bench = Bench(inline_s=inline_s)
        short(bench)
        bench.burst.turn_ended(more=True)
        answers = [bench.send(1.0), bench.send(2.0)]
        await turns()
        answers.append(bench.send(3.0))
        await turns()
        assert bench.model.calls == []
        bench.burst.turn_ended(more=False)
        await turns()
        (call,) = bench.model.calls
        assert call[:3] == [1, 2, 3]  # the fourth row is padding
        assert [(await answer).outputs["y"][0, 0] for answer in answers] == [2, 4, 6]

    scenario(main)


def test_where_requests_never_end_it_is_made_all_the_same() -> None:
    async def main() -> None:
        bench = Bench()
        short(bench)
        sent_s, value = bench.now, 0.0
        while not bench.model.calls:
            value += 1
            bench.send(value, timeout_s=1.0).add_done_callback(lambda done: done.exception())
            bench.burst.turn_ended(more=True)
            work(LONGEST_S / 3)
            await turns(1)
        assert bench.now - sent_s <= 2 * LONGEST_S
        assert bench.model.calls[0][0] == 1

    scenario(main)


def test_a_full_batch_does_not_wait() -> None:
    async def main() -> None:
        bench = Bench(largest=4)
        short(bench)
        bench.burst.turn_ended(more=True)
        for value in range(5):
            bench.send(float(value))
        await turns()
        assert bench.model.calls == [[0, 1, 2, 3]]
        bench.burst.turn_ended(more=False)

    scenario(main)


@pytest.mark.parametrize("seconds", [None, 0.003])
def test_a_long_call_does_not_wait_nor_one_of_which_nothing_is_known(seconds: float | None) -> None:
    async def main() -> None:
        bench = Bench()
        if seconds is not None:
            short(bench, seconds)
        bench.burst.turn_ended(more=True)
        answer = bench.send(1.0)
        await turns()
        assert bench.model.calls == [[1]]
        await answer

    scenario(main)


def test_nobody_else_waits() -> None:
    async def main() -> None:
        bench = Bench()
        short(bench)
        bench.burst.turn_ended(more=True)
        answers = [bench.send(1.0), bench.send(2.0, key=LaneKey("other", 1, "s"))]
        await turns()
        assert bench.model.calls == [[1]]
        bench.burst.turn_ended(more=False)
        for answer in answers:
            await answer

    scenario(main)


def test_nothing_waits_when_the_batcher_drains() -> None:
    async def main() -> None:
        bench = Bench()
        short(bench)
        bench.burst.turn_ended(more=True)
        answer = bench.send(1.0)
        await turns()
        bench.batcher.begin_drain()
        assert (await answer).outputs["y"][0, 0] == 2

    scenario(main)


def test_what_waits_is_no_short_call_because_a_small_part_of_it_comes_first() -> None:
    async def main() -> None:
        bench = Bench()
        estimates = {1: 0.0016, 2: 0.0017, 4: 0.0018, 8: 0.0034}
        bench.function = batch_function(bench.model, 8, initial_estimates=estimates)
        bench.burst.turn_ended(more=True)
        answers = [bench.send(float(value)) for value in range(5)]
        await turns()
        assert bench.model.calls == [[0, 1, 2, 3]]  # a row is cheaper in it than in a call of five, padded
        bench.burst.turn_ended(more=False)
        for answer in answers:
            await answer

    scenario(main)
