"""The end of a batcher: nothing new is accepted, everything accepted is answered."""

from __future__ import annotations

import asyncio
from math import inf

import pytest

from app.batching.function import PlainWay
from app.core.errors import DeadlineExceeded, InferenceFailed, ShuttingDown
from app.core.events import ShadowChecked
from tests.batching.batcher.batcher_bench import Bench, scenario, turns
from tests.support.fakes import KEY, FakeFunction, FakeReply, request_now, rows_of


def test_drain_rejects_new_requests_and_answers_accepted_ones() -> None:
    async def main() -> None:
        bench = Bench(delay_s=10.0)
        accepted = [bench.send(float(value)) for value in range(6)]
        await turns()
        bench.batcher.begin_drain()
        with pytest.raises(ShuttingDown):
            await bench.send(9.0)
        await bench.batcher.drain()
        assert len(await asyncio.gather(*accepted)) == 6
        assert bench.now == 2.0
        assert bench.reasons == ["full", "drain"]
        bench.batcher.close()
        assert bench.devices[0].closed

    scenario(main)


def test_drain_of_an_idle_batcher_is_immediate() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.batcher.drain()
        await bench.batcher.drain()
        assert bench.now == 0.0
        assert (
            repr(bench.batcher) == "<Batcher <RequestQueue 0/100 rows, 0 bytes ()>, <DeviceSlots 1 of 1 free>, drained>"
        )

    scenario(main)


def test_drain_ends_when_the_last_waiting_request_expires_or_is_cancelled() -> None:
    async def main() -> None:
        bench = Bench()
        blocker = bench.send(0.0)
        await turns()
        late, gone = bench.send(1.0, timeout_s=0.5), bench.send(2.0)
        await turns()
        draining = asyncio.create_task(bench.batcher.drain())
        gone.cancel()
        with pytest.raises(DeadlineExceeded):
            await late
        await draining
        assert bench.now == 1.0
        await blocker

    scenario(main)


def test_drain_ends_when_all_that_waits_is_cancelled_before_it_is_dispatched() -> None:
    async def main() -> None:
        bench = Bench()
        handle = bench.batcher.submit(KEY, bench.function, request_now(bench.batcher, rows_of(1.0), 1, FakeReply()))
        bench.batcher.begin_drain()
        handle.cancel()
        await bench.batcher.drain()
        assert (bench.now, bench.model.calls) == (0.0, [])

    scenario(main)


def test_a_drain_that_is_asked_for_twice_ends_for_both_and_is_told() -> None:
    async def main() -> None:
        bench = Bench(delay_s=10.0)
        assert not bench.batcher.drained
        waiting = bench.send(1.0)
        await turns()
        drains = [asyncio.create_task(bench.batcher.drain()) for _ in range(2)]
        await turns()
        assert not bench.batcher.drained
        assert repr(bench.batcher).endswith(", draining>")
        await asyncio.sleep(1.0)
        assert waiting.done(), "all that waits is due"
        await turns()
        assert all(drain.done() for drain in drains)
        assert bench.batcher.drained

    scenario(main)


def test_a_closed_batcher_starts_and_answers_nothing() -> None:
    async def main() -> None:
        bench = Bench(delay_s=0.5)
        replies = [FakeReply(), FakeReply()]
        for reply, timeout_s in zip(replies, (1.0, inf), strict=True):
            deadline_s = bench.loop.time() + timeout_s
            bench.batcher.submit(
                KEY, bench.function, request_now(bench.batcher, rows_of(1.0), 1, reply, deadline_s=deadline_s)
            )
        await turns()
        bench.batcher.close()
        await asyncio.sleep(5.0)
        assert [reply.answers for reply in replies] == [[], []]
        assert bench.model.calls == []

    scenario(main)


def test_while_a_shadow_check_has_the_device_requests_and_a_drain_wait_for_its_end() -> None:
    async def main() -> None:
        for drains in (False, True):
            bench = Bench()
            bench.function.plain = PlainWay(FakeFunction(), lambda _: None)
            await bench.send(1.0)
            await asyncio.sleep(0.5)
            waiting = asyncio.create_task(bench.batcher.drain()) if drains else bench.send(2.0)
            await asyncio.sleep(5.0)
            assert waiting.done()
            assert [event.result for event in bench.events if isinstance(event, ShadowChecked)] == ["agrees"]

    scenario(main)


def test_a_drain_ends_although_no_device_takes_the_last_batch() -> None:
    async def main() -> None:
        bench = Bench(delay_s=10.0)
        waiting = bench.send(1.0)
        await turns()
        bench.devices[0].broken = "away"
        await bench.batcher.drain()
        with pytest.raises(InferenceFailed, match="takes no work"):
            await waiting
        assert bench.batcher.failures(5.0)

    scenario(main)
