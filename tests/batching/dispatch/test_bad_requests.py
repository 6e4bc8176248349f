"""Callers that sent bad requests, and what they share a call with afterwards."""

from __future__ import annotations

import asyncio

import pytest

from app.batching.policy import BatchingOptions, SelfTuning
from app.core.errors import (
    DeadlineExceeded,
    InvalidRequest,
)
from app.core.events import BatchExecuted
from app.core.reply import Answer
from tests.batching.batcher.batcher_bench import Bench, Coalesced, scenario
from tests.support.fakes import (
    KEY,
    FakeReply,
    request_now,
    rows_of,
)


def test_requests_of_a_caller_that_sent_a_bad_one_share_no_call_with_others_for_a_while() -> None:
    async def main() -> None:
        bench = Bench(largest=8)

        def send(*values: float) -> None:
            for value in values:
                caller = "careless" if value < 0 or value > 100 else str(value)
                bench.batcher.submit(
                    KEY, bench.function, request_now(bench.batcher, rows_of(value), 1, FakeReply(), caller=caller)
                )

        send(1.0, 2.0, -3.0, 4.0)
        await asyncio.sleep(60)
        calls_before = len(bench.model.calls)
        assert calls_before > 1
        send(-3.0)
        await asyncio.sleep(1.5)
        send(1.0, 101.0, -3.0, 4.0)  # 101 is sound, and of the same caller
        await asyncio.sleep(60)
        together = [[value for value in call if value > 0] for call in bench.model.calls[calls_before:]]
        assert [1.0, 4.0] in together
        assert [101.0] in together
        assert not any(1.0 in call and 101.0 in call for call in together)
        send(1.0, 101.0)
        await bench.batcher.drain()
        assert bench.model.calls[-1] == [1.0, 101.0]  # a minute later it is forgotten

    scenario(main)


def outcomes(reply: Coalesced) -> list[object]:
    """The value of each of the coalesced requests, or the type of its error."""
    assert all(len(own.answers) == 1 for own in reply.own)
    answers = [own.answers[0] for own in reply.own]
    return [each.outputs["y"][:, 0].tolist() if isinstance(each, Answer) else type(each) for each in answers]


@pytest.mark.parametrize("at_once", [True, False])
def test_of_coalesced_requests_that_the_model_rejects_only_the_bad_one_fails(at_once: bool) -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        await bench.send(1.0, rows=4 if at_once else 1)
        reply, _ = bench.coalesce(2.0, -3.0, 4.0, 5.0)
        await asyncio.sleep(10.0)
        assert outcomes(reply) == [[4.0], InvalidRequest, [8.0], [10.0]]
        assert not reply.answers  # it was taken apart
        assert not bench.function.requests_under_way
        batches = [event for event in bench.events if isinstance(event, BatchExecuted)]
        assert sum(len(list(batch.queue_s)) for batch in batches) == 1 + 4  # each counts once
        assert sum(batch.failed for batch in batches) == 1

    scenario(main)


def test_coalesced_requests_that_were_accepted_before_a_drain_are_answered_though_one_of_them_is_bad() -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        await bench.send(1.0)
        reply, _ = bench.coalesce(2.0, -3.0, 4.0, 5.0)
        await bench.batcher.drain()
        assert outcomes(reply) == [[4.0], InvalidRequest, [8.0], [10.0]]

    scenario(main)


def test_coalesced_requests_that_are_run_apart_keep_their_deadline_and_may_be_cancelled() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.send(1.0)
        reply, _ = bench.coalesce(-2.0, 3.0, 4.0, 5.0, timeout_s=2.5)
        await asyncio.sleep(1.5)  # they failed together, and the first two run again
        reply.own[3].set_exception(InvalidRequest("its client has gone"))
        await asyncio.sleep(5.0)
        assert outcomes(reply)[2:] == [DeadlineExceeded, InvalidRequest]
        assert 4.0 not in [value for call in bench.model.calls[2:] for value in call]
        assert bench.batcher.idle
        assert not bench.function.requests_under_way

    scenario(main)


def test_coalesced_requests_of_which_outputs_do_not_follow_rows_run_one_by_one() -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        await bench.send(1.0)
        bench.function.run = lambda inputs: {"y": inputs["x"].sum(keepdims=True)}
        reply, _ = bench.coalesce(2.0, 3.0)
        waiting, _ = bench.coalesce(4.0, 5.0)
        await asyncio.sleep(10.0)
        assert outcomes(reply) == [[4.0], [6.0]]
        assert outcomes(waiting) == [[8.0], [10.0]]

    scenario(main)


def test_coalesced_requests_are_not_cut_into_parts() -> None:
    async def main() -> None:
        bench = Bench(inline_s=2.0)
        await bench.send(1.0)
        reply, _ = bench.coalesce(2.0, 3.0, 4.0)
        bench.batcher.tune("m", SelfTuning(BatchingOptions(max_batch_size=2)))
        assert bench.batcher.coalescable_rows("m", bench.function) == 2
        await asyncio.sleep(10.0)
        assert [len(call) for call in bench.model.calls[1:]] == [4]
        (answer,) = reply.answers
        assert isinstance(answer, Answer)

    scenario(main)
