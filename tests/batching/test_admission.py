import asyncio
from math import inf, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.admission import Admission, not_accepted, seconds_to_answer
from app.batching.batch import BatchInFlight
from app.batching.batcher import Batcher
from app.batching.devices import DeviceSlots
from app.batching.function import BatchFunction
from app.batching.isolation import Isolations
from app.batching.queue import RequestQueue
from app.batching.request import LaneKey, PendingRequest
from app.batching.scheduler import Scheduler
from app.batching.state import BatcherOptions
from app.batching.waiting.lane import Lane
from app.core.batch_sizes import BatchSizes
from app.core.errors import DeadlineExceeded, Overloaded, ShuttingDown, WouldBeLate
from app.core.reply import Answer
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeDevice, FakeFunction, FakeReply, batch_function, rows_of, run_in_fake_time

CALL_S = 1.0


def function(largest: int = 4) -> BatchFunction:
    sizes = BatchSizes.powers_of_two(largest)
    return BatchFunction(FakeFunction(), sizes, initial_estimates=dict.fromkeys(sizes.allowed, CALL_S))


def settle(function: BatchFunction) -> None:
    """Its calls do not vary."""
    for _ in range(300):
        function.costs(()).record_call(4, function.initial_estimates[4] if function.initial_estimates else CALL_S)


class Scene:
    """A queue with lanes whose calls take a second, whatever their size."""

    def __init__(self) -> None:
        self.queue = RequestQueue(1000)
        self.functions: dict[str, BatchFunction] = {}

    def push(
        self, lane: str, rows: int = 1, at_s: float = 0.0, timeout_s: float = 100.0, priority_offset_s: float = 0.0
    ) -> PendingRequest:
        request = PendingRequest({}, rows, FakeReply(), at_s, at_s + timeout_s, priority_offset_s)
        known = lane in self.functions
        use = self.functions.setdefault(lane, function())
        if not known:
            use.costs(()).record_dispatch(0, 0.0)
            use.costs(()).record_dispatch(0, 0.1)  # nobody comes meanwhile
            settle(use)
        self.queue.push(LaneKey("m", 1, lane), use, request)
        return request

    def seconds(self, request: PendingRequest, *remaining_s: float, devices: int = 1) -> float:
        assert request.lane is not None
        lane = self.queue.lane(request.lane)
        ahead = self.queue.work.before(request.scheduling_key_s, lane)
        return round(seconds_to_answer(request, lane, ahead, remaining_s, devices, lambda each: each.max_rows), 6)


def test_an_idle_device_begins_at_once() -> None:
    scene = Scene()
    assert scene.seconds(scene.push("a")) == 1.0


def test_requests_that_do_not_share_a_call_are_not_counted_as_if_they_did() -> None:
    scene = Scene()
    scene.push("a", rows=3)
    scene.push("a", rows=3)
    assert scene.seconds(scene.push("a", rows=3)) == 3.0  # 9 rows, of which 4 would fit into a call
    scene.push("b", rows=2)
    assert scene.seconds(scene.push("b", rows=2)) == 4.0


def test_the_call_under_way_is_waited_for_where_no_device_is_free() -> None:
    scene = Scene()
    request = scene.push("a")
    assert scene.seconds(request, 0.25) == 1.25
    assert scene.seconds(request, 0.25, devices=2) == 1.0


def test_several_devices_share_the_calls_before_its_own() -> None:
    scene = Scene()
    for other in "bcde":
        scene.push(other)
    request = scene.push("a", at_s=0.5)
    assert scene.seconds(request) == 5.0
    assert scene.seconds(request, devices=2) == 3.0
    assert scene.seconds(request, 1.0, 1.0, devices=2) == 4.0


def test_of_busy_devices_the_first_that_is_free_is_waited_for_about_half_as_long_as_the_last() -> None:
    scene = Scene()
    request = scene.push("a")
    assert scene.seconds(request, 0.2, 0.6, devices=2) == 1.4
    assert scene.seconds(request, 0.2, 0.6, 1.0, devices=3) == 1.6
    assert scene.seconds(request, 0.2, 0.6, devices=3) == 1.0


def test_those_ahead_in_its_lane_fill_batches() -> None:
    scene = Scene()
    for _ in range(8):
        scene.push("a")
    assert scene.seconds(scene.push("a", at_s=0.5)) == 3.0


def test_other_lanes_go_first_as_far_as_they_are_more_urgent() -> None:
    scene = Scene()
    for second in range(8):
        scene.push("early", at_s=second / 100)
        scene.push("late", at_s=0.7 + second / 100)
    assert scene.seconds(scene.push("a", at_s=0.6, timeout_s=inf)) == 3.0  # two calls of the early lane
    assert scene.seconds(scene.push("hasty", at_s=0.9, timeout_s=0.01)) == 1.0


def test_a_priority_offset_overtakes_in_its_own_lane() -> None:
    scene = Scene()
    for second in range(9):
        scene.push("a", at_s=second / 10)
    request = scene.push("a", at_s=0.9, priority_offset_s=0.5)
    assert scene.seconds(request) == 2.0


def test_of_a_large_request_only_the_next_part_is_ahead() -> None:
    scene = Scene()
    scene.push("a", rows=400)
    assert scene.seconds(scene.push("a", at_s=0.1)) == 2.0
    assert scene.seconds(scene.push("b", at_s=0.2)) == 3.0


def test_what_was_not_measured_counts_as_nothing() -> None:
    scene = Scene()
    scene.functions["new"] = BatchFunction(FakeFunction(), BatchSizes((4,)))
    assert scene.seconds(scene.push("new"), 5.0) == 0.0
    assert scene.seconds(scene.push("a", at_s=1.0)) == 1.0


def test_calls_that_vary_may_take_longer() -> None:
    scene = Scene()
    request = scene.push("a")
    costs = scene.functions["a"].costs(())
    for call in range(500):
        costs.record_call(4, CALL_S * (0.8 if call % 2 else 1.2))
    margin_s = scene.seconds(request) - CALL_S
    assert 0.6 < margin_s < 1.1  # four mean deviations
    both_s = scene.seconds(request, 1.0)
    assert both_s == pytest.approx(2 * CALL_S + sqrt(2) * margin_s)  # two calls seldom both take so much longer


def test_several_devices_vary_less_together() -> None:
    scene = Scene()
    request = scene.push("a")
    scene.functions["a"].costs(()).deviation = 0.1
    margin_s = 4 * sqrt((0.2**2 + 0.1**2) / 2**2 + 0.1**2)
    assert scene.seconds(request, 2.0, 1.0, devices=2) == pytest.approx(1.5 + 1.0 + margin_s)


def test_what_a_request_leaves_unfilled_is_computed_with_it() -> None:
    scene = Scene()
    scene.push("a")
    costs = {1: 1.0, 2: 2.0, 4: 4.0}
    scene.functions["b"] = BatchFunction(FakeFunction(), BatchSizes((1, 2, 4)), initial_estimates=costs)
    request = scene.push("b", rows=3, timeout_s=0.5)
    scene.functions["b"].costs(()).deviation = 0.0
    assert scene.seconds(request) == 4.0


def test_requests_that_come_while_it_waits_are_counted() -> None:
    scene = Scene()
    scene.functions["a"] = BatchFunction(FakeFunction(), BatchSizes((1, 4)), initial_estimates={1: 1.0, 4: 2.0})
    request = scene.push("a")
    settle(scene.functions["a"])
    costs = scene.functions["a"].costs(())
    for rows, seconds in ((0, 1.0), (4, 2.0)):
        for call in range(100):
            costs.record_dispatch(rows, call / 10)
        assert costs.rows_per_s == pytest.approx(10 * rows, rel=0.01)
        assert scene.seconds(request, 1.0) == 1.0 + seconds


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.floats(0, 5)), min_size=1, max_size=30))
def test_more_ahead_never_means_sooner(pushes: list[tuple[str, int, float]]) -> None:
    """Of equal timeouts, where all of the others came before."""
    scene, last = Scene(), 0.0
    for lane, rows, _ in pushes:
        request = scene.push("z", at_s=10.0)
        needed_s = scene.seconds(request, 0.5)
        assert needed_s >= last
        last = needed_s
        scene.queue.remove(request)
        scene.push(lane, rows)


def test_lanes_know_which_rows_enter_again() -> None:
    scene = Scene()
    request = scene.push("a", rows=10)
    (lane,) = scene.queue.lanes
    assert isinstance(lane, Lane)
    assert lane.deferred_rows == 6
    scene.queue.take(lane, 4, 4, 1.0)
    assert (lane.rows, lane.deferred_rows) == (6, 2)
    scene.queue.remove(request)
    assert lane.deferred_rows == 0


def test_what_is_left_of_a_large_request_leaves_a_call_unfilled() -> None:
    scene = Scene()
    scene.push("a", rows=11)
    (lane,) = scene.queue.lanes
    assert lane.unfilled_rows == 0
    scene.queue.take(lane, 4, 4, 1.0)
    scene.queue.take(lane, 4, 4, 1.0)
    assert (lane.rows, lane.unfilled_rows) == (3, 1)


def test_a_request_is_told_that_the_server_drains_or_else_that_its_time_is_over() -> None:
    assert type(not_accepted(draining=True)) is ShuttingDown
    assert type(not_accepted(draining=False)) is DeadlineExceeded


class BusyDevice(FakeDevice):
    """Never ends what it begins."""

    def start(self, work: object, done: object) -> None:
        pass


class Line:
    """Requests of several models, one row in each call, which takes a second."""

    def __init__(self, **weights: float) -> None:
        self.queue = RequestQueue(1000)
        self.slots = DeviceSlots([BusyDevice()], lambda: 0.0)
        self.scheduler = Scheduler(WorkConserving(), weights)

    def push(self, model: str, timeout_s: float, arrival_s: float = 0.0, *, largest: int = 1) -> PendingRequest:
        request = PendingRequest({}, 1, FakeReply(), arrival_s, arrival_s + timeout_s)
        estimates = dict.fromkeys((1, largest), 1.0)
        function = batch_function(FakeFunction(), largest, initial_estimates=estimates)
        self.queue.push(LaneKey(model, 1, "f"), function, request)
        return request

    def check(self, request: PendingRequest, isolation_s: float = 0.0) -> None:
        admission(self, isolation_s=isolation_s).check_deadline(request, request.arrival_s)


def admission(line: Line, now: float = 0.0, isolation_s: float = 0.0) -> Admission:
    isolations = Isolations(line.queue)
    isolations.expected_s = isolation_s
    return Admission(line.queue, line.slots, line.scheduler, isolations, lambda: now)


def answered(
    after_s: float, *, timeout_s: float = 10.0, times: int = 1, judged: bool = True, delay: float = 1.0
) -> float:
    """What is learnt of calls that took a second, each answering a request so long after it arrived."""
    made = admission(Line(), after_s)
    made.delay = delay
    request = PendingRequest({}, 1, FakeReply(), 0.0, timeout_s)
    request.judged = judged
    for _ in range(times):
        made.record(1.0, request, after_s)
    return made.delay


def test_late_answers_lengthen_what_is_foreseen_and_timely_ones_shorten_it_slowly() -> None:
    assert answered(10.5) == pytest.approx(1 + 0.2 * 0.995 / 10)
    assert answered(9.91) > 1.0  # it had a way to go
    assert answered(9.89, delay=1.2) == pytest.approx(1.2 - 0.2 * 0.005 / 10)
    assert answered(10.5, times=10) == pytest.approx(1 + 0.2 * 0.995)
    assert answered(10.5, times=1000) == 1.5
    assert answered(9.0, times=10_000, delay=1.2) == 1.0


def test_answers_that_tell_nothing_of_the_estimates_change_nothing() -> None:
    assert answered(4.9, delay=1.2) == 1.2
    assert answered(10.5, timeout_s=inf, delay=1.2) == 1.2
    assert answered(10.5, judged=False) == 1.0  # an idle server took it, or it is a later step


def test_an_answer_counts_as_late_when_the_event_loop_gets_to_it() -> None:
    made = admission(Line(), 10.0)
    request = PendingRequest({}, 1, FakeReply(), 0.0, 10.0)
    request.judged = True
    made.record(1.0, request, 9.5)
    assert made.delay > 1.0


def test_who_would_be_in_time_but_for_the_delay_is_rejected() -> None:
    line = Line()
    made = admission(line, 10.0)
    made.slowest_call_s = 1.0
    for _ in range(3):
        line.push("m", 30.0)
    made.check(line.push("m", 5.0), 0.0)
    made.delay = 1.3
    with pytest.raises(WouldBeLate):
        made.check(line.push("m", 6.3), 0.0)


def test_a_request_that_would_be_late_is_rejected_and_leaves_the_queue() -> None:
    line = Line()
    for _ in range(9):
        line.push("resnet", 30.0)
    late = line.push("bert", 5.0, arrival_s=0.1)
    with pytest.raises(Overloaded, match="has 5000 ms left, and answers take 10316 ms") as rejected:
        line.check(late)
    assert rejected.value.retry_after_s == pytest.approx(10 + 0.1 * sqrt(10) - 4.95)
    assert line.queue.rows == 9


def test_a_request_in_time_by_its_models_weight_is_not_rejected_because_of_other_models() -> None:
    line = Line(bert=3, resnet=1)
    for _ in range(9):
        line.push("resnet", 30.0)
    line.check(line.push("bert", 5.0, arrival_s=0.1))
    line.check(line.push("bert", 5.0, arrival_s=0.2))
    third = line.push("bert", 5.0, arrival_s=0.3)
    line.check(third)
    assert third.judged
    with pytest.raises(Overloaded):
        line.check(line.push("bert", 5.0, arrival_s=0.4))  # four calls at three of four


def test_a_request_with_room_in_the_next_call_of_its_lane_comes_as_early_as_that() -> None:
    """A call of each of two lanes waits; one of them has room for one more."""
    line = Line()
    line.push("a", 0.9, largest=2)
    line.push("b", 0.9, 0.1)
    line.check(line.push("a", 1.4, 0.2))
    with pytest.raises(WouldBeLate):
        line.check(line.push("a", 1.4, 0.2))  # the second call, after that of the other lane


def test_an_idle_server_takes_every_request_and_a_busy_one_does_not() -> None:
    line = Line()
    request = line.push("bert", 0.5)
    line.check(request)
    assert not request.judged  # so that what it takes says nothing of estimates

    lane = line.queue.lane(LaneKey("bert", 1, "f"))
    batch = BatchInFlight(lane, line.queue.take(lane, 1, 1, 0.0), "idle")
    line.slots.start(batch, 0.0, batch.expected_s, lambda *_: None)
    with pytest.raises(Overloaded, match="has 500 ms left"):
        line.check(line.push("bert", 0.5, arrival_s=0.1))

    line = Line()
    line.push("bert", 30.0)
    with pytest.raises(Overloaded):
        line.check(line.push("resnet", 0.5))  # nothing is computed yet, but it is not alone


@pytest.mark.parametrize(
    ("ahead", "isolation_s", "needed_s"), [(3, 0.0, 4.2), (3, 0.5, 4.7), (3, 100.0, 7.4), (0, 9.0, 1.2)]
)
def test_groups_of_rejected_batches_go_in_turns_with_the_calls_before_its_own(
    ahead: int, isolation_s: float, needed_s: float
) -> None:
    """Four calls take four seconds and 0.1 s times the root of four; all but its own call may have to wait as long."""
    line = Line()
    line.push("other", 30.0, arrival_s=5.0)
    for _ in range(ahead):
        line.push("bert", 30.0)
    request = line.push("bert", 0.5)
    with pytest.raises(Overloaded) as rejected:
        line.check(request, isolation_s)
    assert rejected.value.retry_after_s == pytest.approx(needed_s - 0.495)


def test_a_model_that_was_never_called_rejects_nothing_whatever_is_isolated() -> None:
    line = Line()
    line.push("bert", 30.0)
    request = PendingRequest({}, 1, FakeReply(), 0.0, 0.001)
    line.queue.push(LaneKey("new", 1, "f"), batch_function(FakeFunction(), 1), request)
    line.check(request, 9.0)


def test_where_callers_take_turns_a_request_is_not_rejected_for_what_another_caller_has_waiting() -> None:
    """Sixty calls of a second wait of one caller, in twenty lanes; another has a request and five seconds."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for fair in (True, False):
            batcher = Batcher(
                [FakeDevice(1.0)], WorkConserving(), BatcherOptions(1000, fair_callers=fair), clock=loop.time
            )
            made = batch_function(FakeFunction(), 1, initial_estimates={1: 1.0})

            def send(
                caller: str, lane: int, timeout_s: float, batcher: Batcher = batcher, made: BatchFunction = made
            ) -> FakeReply:
                key, reply, deadline_s = LaneKey("m", 1, str(lane)), FakeReply(), loop.time() + timeout_s
                batcher.submit(key, made, rows_of(1.0), 1, reply, deadline_s=deadline_s, caller=caller)
                return reply

            for number in range(60):
                send("load test", number % 20, 1000.0)
            await asyncio.sleep(0.5)
            if not fair:
                with pytest.raises(WouldBeLate):
                    send("other", 30, 5.0)
                continue
            with pytest.raises(WouldBeLate):
                send("load test", 30, 5.0)
            replies = [send("other", 30, 5.0), send("other", 7, 7.0)]
            await asyncio.sleep(8.0)
            assert all(isinstance(reply.answers[0], Answer) for reply in replies)

    run_in_fake_time(main())


def test_a_request_of_a_caller_that_sends_much_expires_while_others_have_their_turns() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        batcher = Batcher([FakeDevice(1.0)], WorkConserving(), BatcherOptions(1000, fair_callers=True), clock=loop.time)
        made, replies = batch_function(FakeFunction(), 1, initial_estimates={1: 1.0}), []
        for caller in "aaabcd":
            replies.append(FakeReply())
            deadline_s = loop.time() + (6.2 if caller == "a" else 1000.0)
            key = LaneKey("m", 1, str(len(replies)))
            batcher.submit(key, made, rows_of(1.0), 1, replies[-1], deadline_s=deadline_s, caller=caller)
        for number in range(2):  # b, c and d have more, which comes before the last request of a
            for caller in "bcd":
                key = LaneKey("m", 1, f"{caller}{number}")
                batcher.submit(key, made, rows_of(1.0), 1, FakeReply(), caller=caller)
        await asyncio.sleep(20.0)
        assert [type(reply.answers[0]) for reply in replies] == [Answer, Answer, DeadlineExceeded, *3 * [Answer]]

    run_in_fake_time(main())
