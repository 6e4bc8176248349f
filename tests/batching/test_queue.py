from collections.abc import Sequence
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.priority import BULK, PATIENCE_S, priority_offset_s
from app.batching.queue import RequestQueue
from app.batching.request import LaneKey, PendingRequest, RequestHandle
from app.batching.shapes.padding import ShapePadding
from app.batching.waiting.callers import Callers
from app.batching.waiting.lane import Lane
from app.core.errors import Overloaded
from app.core.inference import BatchTiming, string_array, tensor_bytes
from app.core.reply import Answer, Reply
from tests.support.fakes import KEY, FakeFunction, FakeReply, batch_function, pending
from tests.support.garbage import garbage

OTHER = LaneKey("m", 1, "other")


def test_a_lane_is_first_come_first_served() -> None:
    queue = RequestQueue(100)
    requests = [pending(arrival_s=float(i)) for i in range(5)]
    for request in requests:
        queue.push(KEY, batch_function(FakeFunction()), request)
    (lane,) = queue.lanes
    assert lane.waiting_since_s == 0.0
    assert queue.take(lane, 3, 100, 0.0) == requests[:3]
    assert queue.take(lane, 3, 100, 0.0) == requests[3:]
    assert not queue.lanes
    assert queue.rows == 0


def test_a_priority_offset_overtakes_what_came_within_it_and_no_more() -> None:
    queue = RequestQueue(100)
    early, late, urgent, patient, last = (pending(arrival_s=at) for at in (0.0, 1.0, 1.2, 1.3, 1.4))
    urgent.priority_offset_s, patient.priority_offset_s = 0.5, -0.5
    for request in (early, late, urgent, patient, last):
        queue.push(KEY, batch_function(FakeFunction()), request)
    (lane,) = queue.lanes
    assert list(lane) == [early, urgent, late, last, patient]
    queue.remove(early)
    assert lane.first is urgent
    assert lane.waiting_since_s == 1.0  # timers start at the oldest, wherever it stands


@pytest.mark.parametrize("offset_s", [0.5, -0.5])
def test_requests_of_one_moment_and_priority_stay_in_the_order_in_which_they_came(offset_s: float) -> None:
    lane = Lane(KEY, batch_function(FakeFunction()))
    requests = [pending(arrival_s=1.0) for _ in range(4)]
    for request in requests:
        request.priority_offset_s = offset_s
        lane.add(request)
    assert list(lane) == requests


def test_room_is_counted_in_rows() -> None:
    queue = RequestQueue(5)
    queue.push(KEY, batch_function(FakeFunction()), pending(rows=4))
    with pytest.raises(Overloaded, match="4 of 5 rows wait, 2 more do not fit"):
        queue.push(KEY, batch_function(FakeFunction()), pending(rows=2))
    queue.push(OTHER, batch_function(FakeFunction()), pending(rows=1))
    assert queue.rows == 5
    assert repr(queue) == "<RequestQueue 5/5 rows, 40 bytes (m/serving_default: 4, m/other: 1)>"


def test_work_in_bulk_leaves_half_of_the_room() -> None:
    queue, function = RequestQueue(10), batch_function(FakeFunction())
    first, second, third = (pending(rows=rows) for rows in (8, 1, 3))
    for bulk in (first, second, third):
        bulk.priority_offset_s = priority_offset_s(BULK)
    queue.push(KEY, function, first)  # nobody waits whom it could be in the way of
    with pytest.raises(Overloaded, match="8 of 5 rows wait, 1 more do not fit"):
        queue.push(KEY, function, second)
    queue.push(KEY, function, pending(rows=2))
    queue.remove(first)
    queue.push(KEY, function, third)
    with pytest.raises(Overloaded, match="5 of 5 rows wait"):
        queue.push(KEY, function, second)
    queue.push(KEY, function, pending(rows=5))


def test_a_request_without_rows_does_not_wait_for_free() -> None:
    queue = RequestQueue(1)
    queue.push(KEY, batch_function(FakeFunction()), pending(rows=0))
    with pytest.raises(Overloaded):
        queue.push(KEY, batch_function(FakeFunction()), pending(rows=0))


def test_room_is_counted_in_bytes_too() -> None:
    """A row of these tests has 8 bytes."""
    queue, function = RequestQueue(10, max_bytes=40), batch_function(FakeFunction())
    first, second = pending(rows=2), pending(rows=3)
    for request in (first, second):
        queue.push(KEY, function, request)
    text = r"10 of 10 rows wait, 2 more do not fit \(each 4 bytes count as a row\)"
    with pytest.raises(Overloaded, match=text):
        queue.push(KEY, function, pending(rows=1))
    assert (queue.rows, queue.bytes) == (5, 40)
    queue.remove(first)
    queue.push(KEY, function, pending(rows=2))
    queue.take(next(iter(queue.lanes)), 3, 4, 0.0)
    assert (queue.rows, queue.bytes, queue.room.rows) == (2, 16, 4)


def test_without_a_limit_in_rows_only_bytes_count() -> None:
    queue, function = RequestQueue(0, max_bytes=8_000_000), batch_function(FakeFunction())
    queue.push(KEY, function, pending(rows=900_000))
    with pytest.raises(Overloaded, match="7200000 of 8000000 bytes wait, 1600000 more do not fit"):
        queue.push(KEY, function, pending(rows=200_000))
    queue.push(KEY, function, pending(rows=100_000))


def test_the_bytes_of_a_large_request_are_free_when_its_last_part_is_taken() -> None:
    queue, function = RequestQueue(100, max_bytes=800), batch_function(FakeFunction())
    queue.push(KEY, function, pending(rows=10))
    (lane,) = queue.lanes
    for left in (6, 2, 0):
        queue.take(lane, 4, 4, 0.0)
        assert (queue.rows, queue.bytes, queue.room.rows) == (left, 80 * bool(left), 10 * bool(left))


def test_the_bytes_of_strings_count() -> None:
    few, many = string_array([b"x" * 1000] * 2), string_array([b"x" * 1000] * 4096)
    assert tensor_bytes({"few": few}) == 2 * (8 + 33 + 1000)
    assert tensor_bytes({"many": many, "none": string_array([])}) == 4096 * (8 + 33 + 1000)


def test_an_oversized_head_does_not_block() -> None:
    queue = RequestQueue(100)
    big, small = pending(rows=9), pending(rows=1)
    for request in (big, small):
        queue.push(KEY, batch_function(FakeFunction()), request)
    (lane,) = queue.lanes
    assert queue.take(lane, 4, 100, 0.0) == [big]
    assert queue.take(lane, 4, 100, 0.0) == [small]


def test_a_large_request_leaves_in_parts_and_waits_behind_later_requests() -> None:
    queue = RequestQueue(100)
    function = batch_function(FakeFunction(), 4)
    first, large, last = pending(1.0, 1), pending(2.0, 9), pending(3.0, 2)
    for request in (first, large, last):
        queue.push(KEY, function, request)
    (lane,) = queue.lanes
    taken = []
    while len(lane):
        requests = queue.take(lane, 4, 4, 7.0)
        assert [len(request.inputs["x"]) for request in requests] == [request.rows for request in requests]
        taken.append([(request.inputs["x"][0, 0], request.rows) for request in requests])
        assert queue.rows == lane.rows == sum(request.counted_rows for request in lane)
    assert taken == [[(1, 1), (2, 3)], [(3, 2), (2, 2)], [(2, 4)]]
    assert function.requests_under_way == 5
    assert not queue.lanes


def test_what_is_left_of_a_large_request_can_be_removed() -> None:
    queue = RequestQueue(100)
    function = batch_function(FakeFunction(), 4)
    large = pending(rows=9)
    queue.push(KEY, function, large)
    (lane,) = queue.lanes
    (part,) = queue.take(lane, 4, 4, 1.0)
    assert queue.remove(large)
    assert queue.rows == 0
    assert (function.requests_under_way, part.rows) == (1, 4)


def test_a_request_that_was_answered_while_it_waited_is_not_taken_and_not_counted_any_more() -> None:
    queue, function = RequestQueue(100), batch_function(FakeFunction())
    gone, stays = pending(1.0, 2), pending(2.0, 1)
    for request in (gone, stays):
        queue.push(KEY, function, request)
    idle: list[int] = []
    function.on_idle = lambda: idle.append(function.requests_under_way)
    gone.reply.set_result("cancelled")
    (lane,) = queue.lanes
    assert queue.take(lane, 4, 4, 0.0) == [stays]
    assert (function.requests_under_way, queue.rows, list(queue.lanes), idle) == (1, 0, [], [])
    assert gone.inputs == {}

    stays.reply.set_result("answered")
    queue.push(KEY, function, stays_too := pending(3.0, 1))
    function.leave()
    stays_too.reply.set_result("cancelled")
    (lane,) = queue.lanes
    assert queue.take(lane, 4, 4, 0.0) == []
    assert (function.requests_under_way, queue.rows, list(queue.lanes), idle) == (0, 0, [], [0])


def test_no_request_is_overtaken_by_a_smaller_one() -> None:
    queue = RequestQueue(100)
    requests = [pending(rows=3), pending(rows=2), pending(rows=1)]
    for request in requests:
        queue.push(KEY, batch_function(FakeFunction()), request)
    (lane,) = queue.lanes
    assert queue.take(lane, 4, 100, 0.0) == requests[:1]


def test_a_removed_request_leaves_once() -> None:
    queue = RequestQueue(100)
    request = pending(rows=3)
    queue.push(KEY, batch_function(FakeFunction()), request)
    assert queue.remove(request)
    assert not queue.remove(request)
    assert queue.rows == 0
    assert not queue.lanes


def test_a_function_that_is_not_batchable_takes_one_row() -> None:
    assert batch_function(FakeFunction(), 8).max_rows == 8
    assert batch_function(FakeFunction(), 8, batchable=False).max_rows == 1


def test_an_answered_request_is_not_failed_any_more() -> None:
    waiting, answered = pending(), pending()
    answered.reply.set_result("answer")
    for request in (waiting, answered):
        request.fail(Overloaded("late"))
    assert isinstance(waiting.reply, FakeReply)
    assert isinstance(answered.reply, FakeReply)
    assert len(waiting.reply.answers) == 1
    assert answered.reply.answers == ["answer"]


def test_an_answered_request_keeps_no_memory() -> None:
    request = pending()
    request.release()
    assert request.inputs == {}
    assert request.reply.done()
    with pytest.raises(AssertionError, match="twice"):
        request.reply.set_result(1)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("push"), st.integers(0, 3), st.integers(0, 6)),
            st.tuples(st.just("take"), st.integers(0, 3), st.integers(1, 8)),
            st.tuples(st.just("remove"), st.integers(0, 30), st.just(0)),
        ),
        max_size=60,
    )
)
def test_rows_are_never_lost_or_counted_twice(steps: list[tuple[str, int, int]]) -> None:
    queue = RequestQueue(20)
    waiting: dict[LaneKey, list[PendingRequest]] = {}
    pushed: list[PendingRequest] = []
    for step, which, size in steps:
        key = LaneKey("m", 1, str(which))
        if step == "push":
            request = pending(rows=size)
            total = sum(each.counted_rows for lane in waiting.values() for each in lane)
            if total + request.counted_rows > 20:
                with pytest.raises(Overloaded):
                    queue.push(key, batch_function(FakeFunction()), request)
            else:
                queue.push(key, batch_function(FakeFunction()), request)
                waiting.setdefault(key, []).append(request)
                pushed.append(request)
        elif step == "take":
            for lane in [lane for lane in queue.lanes if lane.key == key]:
                taken = queue.take(lane, size, 100, 0.0)
                assert taken == waiting[key][: len(taken)]
                assert len(taken) == 1 or sum(each.counted_rows for each in taken) <= size
                del waiting[key][: len(taken)]
        elif which < len(pushed):
            request = pushed[which]
            there = [lane for lane in waiting.values() if request in lane]
            assert queue.remove(request) == bool(there)
            for lane in there:
                lane.remove(request)
        assert queue.rows == sum(each.counted_rows for lane in waiting.values() for each in lane)
        assert {lane.key: list(lane) for lane in queue.lanes} == {k: v for k, v in waiting.items() if v}
        for lane in queue.lanes:
            assert lane.rows == sum(each.counted_rows for each in lane)
            assert lane.unfilled_rows == sum(lane.unfilled(each.counted_rows) for each in lane)


timeouts_s = st.sampled_from([inf, 30.0, 0.5, 0.1])
offsets_s = st.sampled_from([0.0, 0.0, 0.0, 0.4, -0.5])
steps = st.lists(
    st.tuples(st.sampled_from(["add", "add", "leave", "again"]), timeouts_s, offsets_s, st.integers(0, 9)),
    max_size=40,
)


@given(steps)
def test_a_lane_is_as_urgent_as_its_most_urgent_request_and_in_the_order_of_keys(
    steps: list[tuple[str, float, float, int]],
) -> None:
    lane = Lane(KEY, batch_function(FakeFunction()))
    for second, (step, timeout_s, offset_s, which) in enumerate(steps):
        now = second / 4
        if step == "add":
            lane.add(PendingRequest({}, 1, FakeReply(), now, now + timeout_s, offset_s))
        elif len(lane):
            request = list(lane)[which % len(lane)]
            if step == "leave":
                lane.remove([request])
            elif request is lane.first:
                lane.requeue(request, 0, now)
        if len(lane):
            assert lane.scheduling_key_s == min(request.scheduling_key_s for request in lane)
            assert lane.waiting_since_s == min(request.entered_s for request in lane)
            keys = [request.order_key_s for request in lane]
            assert keys == sorted(keys)


def test_a_request_with_much_time_waits_at_most_the_patience_for_urgent_ones() -> None:
    patient = PendingRequest({}, 1, FakeReply(), 10.0, inf)
    assert patient.scheduling_key_s == 10.0 + PATIENCE_S == 11.0
    assert PendingRequest({}, 1, FakeReply(), 10.9, 10.9 + 0.05).scheduling_key_s < patient.scheduling_key_s
    assert PendingRequest({}, 1, FakeReply(), 11.0, 11.0 + 0.05).scheduling_key_s > patient.scheduling_key_s


def test_a_lane_and_its_requests_can_be_printed() -> None:
    queue = RequestQueue(10)
    request = pending(rows=3, arrival_s=1.5, deadline_s=9.0)
    assert repr(request) == "<PendingRequest 3 rows, arrived at 1.5 s, due by 9 s, taken>"
    queue.push(KEY, batch_function(FakeFunction()), request)
    assert repr(request) == "<PendingRequest 3 rows, arrived at 1.5 s, due by 9 s, waiting>"
    assert repr(queue) == "<RequestQueue 3/10 rows, 24 bytes (m/serving_default: 3)>"
    assert repr(queue.lane(KEY)) == "<Lane m/1/serving_default: 3 rows of 1 requests>"
    queue.remove(request)
    request.release()
    assert repr(request) == "<PendingRequest 3 rows, arrived at 1.5 s, due by 9 s, answered>"


def lengths_near(queue: RequestQueue, key: LaneKey) -> list[int]:
    return [lane.key.shape[0][0] for _, lane in queue.nearest(queue.lane(key))]


def test_lanes_that_may_be_merged_are_told_nearest_first_while_they_wait() -> None:
    queue, padding = RequestQueue(100), ShapePadding({"x": ("a",)}, {"y": ("a",)}, {"x": 0}, call_cells=0.0)
    function = batch_function(FakeFunction(), padding=padding)
    own, *others = (LaneKey("m", 1, "f", (), ((length,),), True) for length in (32, 30, 100, 40, 16, 64, 33))
    requests = {key: pending() for key in (own, *others)}
    for key, request in requests.items():
        queue.push(key, function, request)
    queue.push(LaneKey("m", 1, "other", (), ((32,),), True), function, pending())
    assert lengths_near(queue, own) == [33, 30, 40, 16, 64, 100]  # of 16 and 64, which are as far, the smaller

    queue.remove(requests[others[0]])
    assert lengths_near(queue, own) == [33, 40, 16, 64, 100]
    told = queue.nearest(queue.lane(own))
    assert next(told)[1].key.shape == ((33,),)
    for key in others[1:4]:
        queue.remove(requests[key])
    assert [lane.key.shape for _, lane in told] == [((64,),)]
    for lane in list(queue.lanes):
        queue.remove(lane.first)
    assert queue._sized == {}


def test_requests_without_rows_count_as_one_when_they_are_taken() -> None:
    queue = RequestQueue(100)
    for _ in range(3):
        queue.push(KEY, batch_function(FakeFunction()), pending(rows=0))
    assert len(queue.take(queue.lane(KEY), 2, 4, 0.0)) == 2


@pytest.mark.parametrize(("all_rows", "taken"), [((4, 9), [4]), ((3, 9), [3, 1]), ((2, 4), [2]), ((4,), [4])])
def test_only_what_is_larger_than_a_batch_is_cut_and_only_if_a_row_of_it_fits(
    all_rows: tuple[int, ...], taken: list[int]
) -> None:
    queue, function = RequestQueue(100), batch_function(FakeFunction(), 4)
    for rows in all_rows:
        queue.push(KEY, function, pending(rows=rows))
    assert [request.rows for request in queue.take(queue.lane(KEY), 4, 4, 0.0)] == taken


def test_the_rest_of_a_large_request_enters_when_its_part_is_taken() -> None:
    queue, function = RequestQueue(100), batch_function(FakeFunction(), 4)
    large, calm = pending(rows=9), pending(arrival_s=1.0)
    calm.priority_offset_s = -0.5
    for request in (large, calm):
        queue.push(KEY, function, request)
    lane = queue.lane(KEY)
    queue.take(lane, 4, 4, 1.2)
    assert (lane.waiting_since_s, list(lane)) == (1.0, [large, calm])
    queue.take(lane, 4, 4, 7.0)
    assert list(lane) == [calm, large]
    queue.remove(calm)
    assert lane.waiting_since_s == 7.0


def test_a_caller_leaves_room_to_others() -> None:
    queue, function = RequestQueue(10, callers=Callers()), batch_function(FakeFunction(), 16)

    def push(caller: str, rows: int) -> PendingRequest:
        request = pending(rows=rows)
        request.caller = caller
        queue.push(KEY, function, request)
        return request

    first = push("a", 5)
    with pytest.raises(Overloaded, match="full for this caller: 5 of its rows wait"):
        push("a", 1)
    push("b", 4)
    queue.remove(first)
    push("a", 3)


class StepReplies(FakeReply):
    """The reply of a step that several requests take together, which have these rows."""

    def __init__(self, rows: Sequence[int]) -> None:
        super().__init__()
        self.rows = rows

    def divide(self, number: int, handle: RequestHandle) -> tuple[Reply, Reply]:
        return StepReplies(self.rows[:number]), StepReplies(self.rows[number:])


def together(*rows: int) -> PendingRequest:
    """A step that several requests take together."""
    request = pending(rows=sum(rows))
    request.reply = StepReplies(rows)
    request.feeds, request.coalesced_s = True, (0.0,) * len(rows)
    request.accept_part = accepted
    return request


def accepted(request: PendingRequest) -> RequestHandle:
    return RequestHandle(request, lambda _: False)


sizes = st.one_of(
    st.tuples(st.just("push"), st.integers(0, 11), st.sampled_from("ab")),
    st.tuples(st.just("push together"), st.integers(2, 4), st.sampled_from("ab")),
    st.tuples(st.just("take"), st.integers(1, 4), st.just("")),
    st.tuples(st.just("remove"), st.integers(0, 30), st.just("")),
)


@pytest.mark.parametrize("fair_callers", [False, True])
@given(st.lists(sizes, min_size=5, max_size=40))
def test_all_sums_are_those_of_the_requests_that_wait(fair_callers: bool, steps: list[tuple[str, int, str]]) -> None:
    """Calls have four rows at most."""
    queue, function = (
        RequestQueue(10**6, callers=Callers() if fair_callers else None),
        batch_function(FakeFunction(), 4),
    )
    taken = 0
    for step, number, caller in steps:
        if step.startswith("push"):
            request = pending(rows=number) if step == "push" else together(*[1] * number)
            request.caller = caller
            queue.push(KEY, function, request)
        elif queue.rows:
            lane = queue.lane(KEY)
            waiting = list(lane)
            if step == "take":
                taken += len(queue.take(lane, number, 4, 1.0))
            else:
                assert queue.remove(waiting[number % len(waiting)])
        waiting = [request for lane in queue.lanes for request in lane]
        weights = [request.rows or 1 for request in waiting]
        for lane in queue.lanes:
            assert lane.rows == queue.rows == sum(weights)
            assert lane.deferred_rows == sum(max(0, weight - 4) for weight in weights)
            assert lane.unfilled_rows == sum(weight == 3 for weight in weights)
        by_caller = {
            caller: sum(request.rows or 1 for request in waiting if request.caller == caller)
            for caller in {request.caller for request in waiting}
        }
        assert queue.room._callers == (by_caller if fair_callers else {})
        assert function.requests_under_way == len(waiting) + taken
        places = len(by_caller) if fair_callers else 1
        assert {model: order.lanes for model, order in queue.orders.items()} == ({"m": places} if waiting else {})


def test_a_lane_stands_in_an_order_as_soon_as_there_is_another() -> None:
    queue, function = RequestQueue(100), batch_function(FakeFunction())
    first, second = pending(arrival_s=1.0), pending(arrival_s=0.0)
    queue.push(KEY, function, first)
    assert queue.only_lane is queue.lane(KEY)
    queue.push(OTHER, function, second)
    assert queue.only_lane is None
    assert {model: order.lanes for model, order in queue.orders.items()} == {"m": 2}
    assert queue.remove(second)
    assert queue.remove(first)
    assert not queue.orders
    queue.push(OTHER, function, pending())
    assert queue.only_lane is queue.lane(OTHER)


def test_what_is_coalesced_is_answered_as_a_whole_and_never_cut() -> None:
    queue, function = RequestQueue(100), batch_function(FakeFunction(), 4)
    coalesced = pending(rows=6)
    coalesced.coalesced_s = (0.0,) * 6
    for request in (pending(rows=2), coalesced):
        queue.push(KEY, function, request)
    assert [request.rows for request in queue.take(queue.lane(KEY), 4, 4, 0.0)] == [2]
    assert queue.take(queue.lane(KEY), 4, 4, 0.0) == [coalesced]


@pytest.mark.parametrize(
    ("rows", "room", "taken", "left"),
    [
        ((1, 1, 1), 2, (1, 1), (1,)),
        ((1, 2, 1), 2, (1,), (2, 1)),
        ((2, 1), 2, (2,), (1,)),
        ((1, 3), 3, (1,), (3,)),
    ],
)
def test_of_a_step_that_several_take_together_those_that_fit_are_taken(
    rows: tuple[int, ...], room: int, taken: tuple[int, ...], left: tuple[int, ...]
) -> None:
    queue, function, all_of_them = (
        RequestQueue(100),
        batch_function(FakeFunction(), 4),
        together(*rows),
    )
    all_of_them.inputs = {"x": np.arange(sum(rows))[:, None]}
    queue.push(KEY, function, all_of_them)
    queue.push(KEY, function, pending(rows=1))
    (first,) = queue.take(queue.lane(KEY), room, 4, 0.0)
    assert (first.reply.rows, len(first.coalesced_s or (0.0,))) == (taken, len(taken))  # type: ignore[attr-defined] - as divided
    assert next(iter(queue.lane(KEY))) is all_of_them, "the others keep their place"
    assert (all_of_them.reply.rows, len(all_of_them.coalesced_s or (0.0,))) == (left, len(left))  # type: ignore[attr-defined] - as divided
    assert [*first.inputs["x"][:, 0], *all_of_them.inputs["x"][:, 0]] == list(range(sum(rows)))


def test_a_step_whose_first_request_does_not_fit_goes_as_a_whole_or_waits() -> None:
    queue, function = RequestQueue(100), batch_function(FakeFunction(), 4)
    two_and_one = together(2, 1)
    for request in (pending(rows=1), two_and_one):
        queue.push(KEY, function, request)
    assert [each.rows for each in queue.take(queue.lane(KEY), 2, 4, 0.0)] == [1]
    assert queue.take(queue.lane(KEY), 1, 4, 0.0) == [two_and_one]


def test_a_request_is_answered_by_all_of_its_parts_also_by_the_last_beside_a_request_that_is_whole() -> None:
    queue, function = RequestQueue(100), batch_function(FakeFunction(), 8)
    reply, inputs = FakeReply(), {"x": np.arange(9.0)[:, None]}
    large, small = PendingRequest(inputs, 9, reply, 0.0), pending(7.0, 2)
    for request in (large, small):
        queue.push(KEY, function, request)
    (part,) = queue.take(queue.lane(KEY), 4, 4, 1.0)
    whole, rest = queue.take(queue.lane(KEY), 8, 8, 2.0)
    assert whole is small
    for each in (part, rest):
        each.answer(Answer({"y": each.inputs["x"]}, BatchTiming()))
    (answer,) = reply.answers
    assert isinstance(answer, Answer)
    assert answer.outputs["y"][:, 0].tolist() == list(range(9))


def test_a_part_leaves_what_the_rest_of_its_request_leaves_unfilled() -> None:
    queue = RequestQueue(100)
    queue.push(KEY, batch_function(FakeFunction(), 4), pending(rows=3))
    lane = queue.lane(KEY)
    assert lane.unfilled_rows == 1
    queue.take(lane, 2, 2, 0.0)
    assert (lane.rows, lane.unfilled_rows) == (1, 0)


def test_of_lanes_that_are_all_smaller_or_all_larger_the_nearest_is_first_with_its_size() -> None:
    padding = ShapePadding({"x": ("a",)}, {"y": ("a",)}, {"x": 0}, call_cells=0.0)
    function = batch_function(FakeFunction(), padding=padding)
    for lengths in ([16, 30, 32], [64, 40, 32]):
        queue = RequestQueue(100)
        keys = [LaneKey("m", 1, "f", (), ((length,),), True) for length in lengths]
        for key in keys:
            queue.push(key, function, pending())
        found = [(cells, lane.key) for cells, lane in queue.nearest(queue.lane(keys[2]))]
        assert found == [(lengths[1], keys[1]), (lengths[0], keys[0])]


class Work:
    """A queue of models whose calls take a tenth of a second for each row, and nobody comes meanwhile."""

    def __init__(self) -> None:
        self.queue = RequestQueue(100)
        self.queue.push(KEY, batch_function(FakeFunction()), pending())  # of whose calls nothing is known

    def push(self, key: LaneKey, rows: int) -> PendingRequest:
        function = batch_function(FakeFunction(), 4, initial_estimates={1: 0.1, 2: 0.2, 4: 0.4})
        for now in (0.0, 0.1):
            function.costs(()).record_dispatch(0, now)
        request = pending(rows=rows)
        self.queue.push(key, function, request)
        return request

    @property
    def seconds(self) -> float:
        """Of the calls of all others."""
        return self.queue.work.before(1e6, self.queue.lane(KEY)).seconds


def test_the_work_that_waits_follows_what_comes_and_leaves() -> None:
    work, third = Work(), LaneKey("m", 1, "third")
    first = work.push(OTHER, 2)
    assert work.seconds == pytest.approx(0.2)
    work.push(OTHER, 1)
    assert work.seconds == pytest.approx(0.4), "3 rows are a call of 4"
    work.push(third, 6)
    assert work.seconds == pytest.approx(0.4 + 0.4), "of a large request only the next part"
    work.queue.remove(first)
    assert work.seconds == pytest.approx(0.1 + 0.4)
    work.queue.take(work.queue.lane(third), 4, 4, 0.0)
    assert work.seconds == pytest.approx(0.1 + 0.2)
    work.queue.take(work.queue.lane(OTHER), 4, 4, 0.0)
    assert work.seconds == pytest.approx(0.2), "a lane that is gone takes only its own work with it"
    work.queue.take(work.queue.lane(third), 4, 4, 0.0)
    assert work.seconds == pytest.approx(0.0)


def test_an_empty_queue_leaves_no_rounding_behind() -> None:
    work, keys = Work(), [LaneKey("m", 1, str(number)) for number in range(3)]
    requests = [work.push(key, rows) for key, rows in zip(keys, (1, 2, 3), strict=True)]
    assert work.seconds == pytest.approx(0.1 + 0.2 + 0.4)
    for request in [*requests, work.queue.lane(KEY).first]:
        work.queue.remove(request)
    work.queue.push(KEY, batch_function(FakeFunction()), pending())
    assert work.seconds == 0.0


@pytest.mark.parametrize("callers", [None, Callers()])
def test_a_lane_in_which_nothing_waits_leaves_nothing_for_the_collector(callers: Callers | None) -> None:
    queue = RequestQueue(100, callers=callers)
    function = batch_function(FakeFunction())
    with garbage() as left:
        for key in (KEY, OTHER):
            first, second = pending(), pending()
            first.caller = "first"
            queue.push(key, function, first)
            queue.push(key, function, second)
            assert len(queue.take(queue.lane(key), 1, 100, 0.0)) == 1
            assert queue.remove(second) or queue.remove(first)
            del first, second
    assert not queue.lanes
    assert not left
