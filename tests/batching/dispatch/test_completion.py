import asyncio
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.batch import BatchInFlight, Execution
from app.batching.dispatch.completion import Completion, InOrderCompletion, answer
from app.batching.request import LaneKey, PendingRequest
from app.batching.waiting.lane import Lane
from app.core.errors import InferenceFailed
from app.core.events import BatchExecuted, ignore
from app.core.inference import BatchTiming
from app.core.reply import Answer
from tests.support.fakes import FakeFunction, FakeReply, batch_function, pending, rows_of

EXECUTION = Execution([], 0.0, 1.0, 0, 0.0)


def lane(name: str) -> Lane:
    return Lane(LaneKey("m", 1, name), batch_function(FakeFunction()))


def batch(name: str, requests: list[PendingRequest] | None = None, *merged: str) -> BatchInFlight:
    made = BatchInFlight(lane(name), requests or [pending()], "idle")
    for other in merged:
        made.merge(lane(other), [pending()])
    return made


def started(*batches: BatchInFlight) -> InOrderCompletion:
    order = InOrderCompletion()
    for each in batches:
        order.record_start(each)
    return order


def draining(check: Callable[[], None]) -> Any:
    """A drain that has begun."""
    return SimpleNamespace(begun=True, check=check)


def due(order: InOrderCompletion) -> list[BatchInFlight]:
    return [each for each, _ in order.due()]


def test_what_ended_first_waits_for_what_began_first() -> None:
    first, second = batch("a"), batch("a")
    order = started(first, second)
    assert not order.holds
    order.record_end(second, EXECUTION)
    assert due(order) == []
    assert order.holds
    order.record_end(first, EXECUTION)
    assert due(order) == [first, second]
    assert not order
    assert not order.holds


def test_another_lane_does_not_wait() -> None:
    first, second = batch("a"), batch("b")
    order = started(first, second)
    order.record_end(second, EXECUTION)
    assert due(order) == [second]
    assert len(order) == 1


def test_merged_a_batch_keep_the_order_of_their_own_lane() -> None:
    first, mixed, third = batch("a"), batch("b", None, "a"), batch("b")
    order = started(first, mixed, third)
    for each in (third, mixed):
        order.record_end(each, EXECUTION)
        assert due(order) == []
    order.record_end(first, EXECUTION)
    assert due(order) == [first, mixed, third]


def test_a_batch_without_waiting_requests_holds_no_other() -> None:
    requests = [pending(), pending()]
    stuck, second = batch("a", requests), batch("a")
    order = started(stuck, second)
    order.record_end(second, EXECUTION)
    requests[0].reply.set_exception(ValueError())
    assert due(order) == []
    requests[1].reply.set_exception(ValueError())  # both have expired
    assert due(order) == [second]
    order.record_end(stuck, EXECUTION)
    assert due(order) == [stuck]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sets(st.sampled_from("abc"))), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_each_batch_is_due_once_and_after_earlier_batches_of_its_lanes_with_unanswered_requests(
    shapes: list[tuple[str, set[str]]], random: Random
) -> None:
    batches = [batch(name, None, *sorted(guests - {name})) for name, guests in shapes]
    order = started(*batches)
    events = [(number, what) for number in range(len(batches)) for what in ("ended", "expired")]
    random.shuffle(events)
    given_out: list[BatchInFlight] = []
    for number, what in events:
        each = batches[number]
        if what == "ended":
            order.record_end(each, EXECUTION)
        else:
            for request in each.requests:
                if not request.reply.done():
                    request.reply.set_result(None)
        for now_due in order.due():
            earlier = batches[: batches.index(now_due[0])]
            assert now_due[0] not in given_out
            assert all(
                other in given_out or not other.awaited or set(other.lanes).isdisjoint(now_due[0].lanes)
                for other in earlier
            )
            given_out.append(now_due[0])
    assert set(given_out) == set(batches)
    assert not order


def test_a_bug_at_the_end_of_a_batch_answers_its_requests_with_an_error_and_frees_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        completed: list[str] = []
        completion = Completion(ignore, draining(lambda: completed.append("batch")), in_order=True)
        replies = [FakeReply(), FakeReply()]
        requests = [PendingRequest(rows_of(1.0), 1, reply, 0.0) for reply in replies]
        broken, fine = batch("a", requests), batch("a")
        broken.function.requests_under_way = 2
        completion.order.record_start(broken)
        completion.order.record_start(fine)
        completion.complete(fine, Execution([{}], 0.0, 1.0, 0, 0.0))
        completion.complete(broken, EXECUTION)  # an outcome is missing
        assert [type(reply.answers[0]) for reply in replies] == [InferenceFailed] * 2
        assert broken.function.requests_under_way == 0
        assert completed == ["batch"] * 2
        assert not completion.order

    asyncio.run(main())
    assert "The end of a batch failed" in caplog.text


@pytest.mark.parametrize("in_order", [False, True])
def test_a_batch_without_answers_and_a_request_that_left_are_told_at_once(
    in_order: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        told: list[str] = []
        completion = Completion(ignore, draining(lambda: told.append("left")), in_order=in_order)
        assert (completion.order is not None) == in_order
        forgotten, later = batch("a"), batch("a")
        if completion.order is not None:
            completion.order.record_start(forgotten)
            completion.order.record_start(later)
        completion.forget(forgotten)
        assert told == ["left"]
        completion.on_cancel()
        assert told == ["left"] * 2
        completion.complete(later, Execution([{}], 0.0, 1.0, 0, 0.0))
        assert told == ["left"] * 3
        await asyncio.sleep(0)

    asyncio.run(main())
    assert caplog.text == ""


def test_what_waited_for_requests_that_left_is_answered_in_the_next_turn() -> None:
    async def main() -> None:
        completion = Completion(ignore, draining(lambda: None), in_order=True)
        reply = FakeReply()
        stuck, held = batch("a"), batch("a", [PendingRequest(rows_of(1.0), 1, reply, 0.0)])
        for each in (stuck, held):
            completion.order.record_start(each)
        completion.complete(held, Execution([{}], 0.0, 1.0, 0, 0.0))
        stuck.requests[0].fail(InferenceFailed("its time ran out"))
        completion.on_cancel()
        assert not reply.done()
        await asyncio.sleep(0)
        assert [type(each) for each in reply.answers] == [Answer]

    asyncio.run(main())


def test_a_batch_tells_how_long_each_request_waited_and_which_failed_or_came_too_late() -> None:
    def request(rows: int, arrivals_s: list[float], deadline_s: float = 99.0) -> PendingRequest:
        made = PendingRequest(rows_of(1.0, rows), rows, FakeReply(), arrivals_s[0], deadline_s)
        made.coalesced_s = arrivals_s if len(arrivals_s) > 1 else ()
        return made

    requests = [
        request(2, [1.0]),
        request(3, [2.0, 2.5, 3.0]),
        request(4, [2.0]),
        request(2, [3.0, 3.5], deadline_s=10.0),  # of two requests, and its time ran out when the call began
        request(1, [3.0], deadline_s=10.5),
    ]
    replies, failed = [cast(FakeReply, each.reply) for each in requests], InferenceFailed("no")
    made = batch("a", requests)
    made.function.requests_under_way = 5
    outputs = {"y": rows_of(2.0)["x"]}
    execution = Execution([outputs, failed, failed, outputs, outputs], 10.0, 12.0, 4, 0.25, None, 0.125, 0.5)
    told = answer(made, execution)
    waits_s = [9.0, 8.0, 7.5, 7.0, 8.0, 7.0, 6.5, 7.0]
    assert told == BatchExecuted("m", 1, "a", 12, 4, "idle", 2.0, waits_s, 4, 7, 2, 0.25, 0.125, 0.5)
    assert [each.answers for each in replies] == [
        [Answer(outputs, BatchTiming(9.0, 2.0, 12))], [failed], [failed],
        [Answer(outputs, BatchTiming(7.0, 2.0, 12))], [Answer(outputs, BatchTiming(7.0, 2.0, 12))],
    ]  # fmt: skip
    assert all(each.inputs == {} for each in requests), "no tensors are kept"
    assert made.function.requests_under_way == 0
