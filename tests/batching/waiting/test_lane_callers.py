from __future__ import annotations

from collections import Counter
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from app.batching.batch import BatchInFlight
from app.batching.queue import RequestQueue
from app.batching.request import LaneKey, PendingRequest
from app.batching.scheduler import Scheduler
from app.batching.waiting.callers import Callers
from app.batching.waiting.lane import Lane
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import KEY, FakeFunction, FakeReply, batch_function, rows_of
from tests.support.steps import steps_of


class Waiting:
    """A lane whose callers take turns; a row takes `row_s`, in calls of a power of two."""

    def __init__(self, largest: int = 128, row_s: float = 1.0) -> None:
        self.callers = Callers()
        self.queue = RequestQueue(10**6, callers=self.callers)
        self.scheduler = Scheduler(WorkConserving(), {}, self.callers)
        seconds = {2**power: row_s * 2**power for power in range(largest.bit_length())}
        self.function = batch_function(FakeFunction(), largest, initial_estimates=seconds)
        self.now = 0.0

    def push(self, caller: str, rows: int = 1, offset_s: float = 0.0, key: LaneKey = KEY) -> PendingRequest:
        self.now += 1.0
        request = PendingRequest({}, rows, FakeReply(), self.now, priority_offset_s=offset_s, caller=caller)
        self.queue.push(key, self.function, request)
        return request

    @property
    def lane(self) -> Lane:
        return self.queue.lane(KEY)

    def take(self, rows: int, most_rows: int = 10**6) -> str:
        return "".join(request.caller for request in self.call(rows, most_rows))

    def call(self, rows: int, most_rows: int = 10**6) -> list[PendingRequest]:
        """A call that takes as long as expected."""
        lane = self.lane
        taken = self.queue.take(lane, rows, most_rows, self.now)
        batch = BatchInFlight(lane, list(taken), "idle")
        self.scheduler.record_start(batch)
        self.scheduler.record_end(batch, batch.expected_s)
        return taken


def test_who_sent_less_does_not_wait_for_who_sent_more() -> None:
    waiting = Waiting()
    for caller in "aaaaaaaabb":
        waiting.push(caller)
    assert "".join(request.caller for request in waiting.lane) == "ababaaaaaa"
    assert waiting.take(4) == "abab"
    waiting.push("c")
    assert waiting.take(4) == "caaa"


def test_callers_get_equal_rows_not_equal_requests() -> None:
    waiting = Waiting()
    for _ in range(3):
        waiting.push("a", rows=4)
    for _ in range(12):
        waiting.push("b")
    assert waiting.take(16) == "ab" + "bbb" + "ab" + "bbb"


def test_requests_of_one_caller_stay_in_order_but_for_their_priorities() -> None:
    waiting = Waiting()
    first, second, urgent = waiting.push("a"), waiting.push("a"), waiting.push("a", offset_s=1.5)
    other = waiting.push("b", offset_s=-9.0)
    assert list(waiting.lane) == [first, other, urgent, second]


def test_turns_are_not_saved_up_nor_won_by_leaving_the_queue_in_between() -> None:
    waiting = Waiting()
    for _ in range(100):
        waiting.push("a")
    waiting.push("b", rows=50)
    assert waiting.take(51) == "ab"
    waiting.push("b")
    assert waiting.take(40) == 40 * "a"  # b had fifty
    assert waiting.take(20).count("b") == 1


def test_who_was_away_while_others_were_served_has_no_turns_to_make_up_for() -> None:
    waiting = Waiting()
    for _ in range(300):
        waiting.push("a")
    waiting.push("b", rows=50)
    assert waiting.take(51) == "ab"
    assert waiting.take(200) == 200 * "a"
    for _ in range(10):
        waiting.push("b")
    taken = waiting.take(60)
    assert taken.count("b") == 10
    assert "bb" not in taken


def test_the_rest_of_a_large_request_counts_with_its_rows() -> None:
    waiting = Waiting(largest=4)
    large = PendingRequest(rows_of(1.0, 12), 12, FakeReply(), 0.0, caller="a")
    waiting.queue.push(KEY, waiting.function, large)
    waiting.queue.take(waiting.lane, 4, 4, 1.0)
    last = waiting.push("a", rows=4)
    assert waiting.lane.rows_before(last) == 4  # of the rest only the next part is before it
    assert waiting.lane.callers is not None
    assert waiting.lane.callers.rows_before(last, 100) == 8  # nobody else waits


def test_who_leaves_is_not_charged() -> None:
    waiting = Waiting()
    gone = waiting.push("a", rows=100)
    waiting.push("a")
    waiting.push("b")
    waiting.push("b")
    waiting.queue.remove(gone)
    assert waiting.take(3) == "abb"


def test_a_large_request_takes_turns_part_by_part() -> None:
    waiting = Waiting(largest=4)
    large = PendingRequest(rows_of(1.0, 12), 12, FakeReply(), 0.0, caller="a")
    waiting.queue.push(KEY, waiting.function, large)
    for _ in range(8):
        waiting.push("b")
    calls = []
    while waiting.queue.rows:
        taken = waiting.call(4, 4)
        calls.append("".join(request.caller * request.rows for request in taken))
    assert calls == ["aaaa", "bbbb", "aaaa", "bbbb", "aaaa"]


def test_what_callers_cost_does_not_grow_with_their_number() -> None:
    steps = []
    for callers in (100, 3000):
        waiting = Waiting()
        for number in range(callers):
            waiting.push(f"caller {number}")

        def act(waiting: Waiting = waiting) -> None:
            for number in range(20):
                waiting.queue.remove(waiting.push(f"other {number}"))
                waiting.push(f"caller {number}")
                waiting.take(4)

        steps.append(steps_of(act))
    assert steps[1] < 2 * steps[0]


def test_callers_that_are_ever_new_overtake_no_one_for_ever() -> None:
    waiting = Waiting()
    for _ in range(3):
        waiting.push("a")
    taken = ""
    for number in range(9):
        waiting.push(str(number))
        taken += waiting.take(1)
    assert taken.count("a") == 3


def test_the_rows_before_a_callers_request_are_those_of_its_turns() -> None:
    """Each other caller has as many rows taken as it has, if it has as many."""
    waiting = Waiting(largest=1)
    for _ in range(9):
        waiting.push("a")
    assert waiting.lane.rows_before(waiting.push("b")) == 1
    assert waiting.lane.rows_before(waiting.push("b")) == 1 + 2
    assert waiting.lane.rows_before(waiting.push("c")) == 2
    last = waiting.push("a")
    assert waiting.lane.rows_before(last) == 9 + 3  # all of the others
    waiting.queue.remove(last)
    waiting.queue.remove(waiting.lane.first)
    assert waiting.lane.rows_before(waiting.push("a")) == 8 + 3


def test_the_rows_of_a_caller_before_a_request_are_those_that_still_wait() -> None:
    waiting = Waiting(largest=1)
    for _ in range(20):
        waiting.push("b")
    gone = [waiting.push("a") for _ in range(3)]
    for request in gone[:2]:
        waiting.queue.remove(request)
    assert waiting.lane.rows_before(waiting.push("a")) == 1 + 2


def test_the_work_of_a_caller_is_what_waits_of_it_here_and_elsewhere() -> None:
    waiting, elsewhere = Waiting(), LaneKey("m", 1, "elsewhere")
    first = waiting.push("a", rows=4)
    waiting.push("b", rows=64)
    callers = waiting.lane.callers
    assert callers is not None
    assert callers.work_s("a") == (4.0, 0.0)
    waiting.push("a", rows=4)
    assert callers.work_s("a") == (8.0, 0.0)
    other = waiting.push("a", rows=2, key=elsewhere)
    assert callers.work_s("a") == (8.0, 2.0)
    waiting.queue.remove(first)
    assert callers.work_s("a") == (4.0, 2.0)
    waiting.queue.remove(other)
    assert callers.work_s("a") == (4.0, 0.0)


def test_a_request_moves_its_caller_by_the_seconds_of_its_rows() -> None:
    waiting = Waiting(row_s=0.25)
    waiting.push("b", rows=16)
    waiting.push("a")
    assert waiting.take(16) == "b"  # for 4 s; a and b had work, so a caller that comes starts at 2 s
    waiting.push("c")
    for _ in range(14):
        waiting.push("a")
    assert "".join(request.caller for request in waiting.lane).index("c") == 8


def test_an_empty_lane_has_no_turns() -> None:
    waiting = Waiting()
    waiting.push("a")
    lane = waiting.lane
    assert waiting.take(1) == "a"
    assert list(lane) == []


def test_callers_that_left_are_forgotten() -> None:
    waiting = Waiting()
    waiting.push("a", rows=10**5)
    for number in range(1000):
        waiting.push(f"caller {number}", rows=2)
        waiting.take(2)
    assert waiting.lane.callers is not None
    assert len(waiting.callers._known) < 200
    assert len(waiting.lane.callers._by_caller) == 1
    assert len(waiting.lane.callers._fair_heap._heap) < 100


sent = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5)), min_size=1, max_size=60)


@given(sent, st.lists(st.one_of(st.integers(1, 9), st.tuples(st.sampled_from("abc"), st.integers(1, 5))), max_size=40))
def test_callers_that_wait_in_a_lane_get_seconds_that_differ_by_no_more_than_a_call_of_each(
    sent: list[tuple[str, int]], steps: list[int | tuple[str, int]]
) -> None:
    """Theorem 1 of the paper, from any moment on as long as both have something waiting."""
    waiting = Waiting(largest=16)
    for caller, rows in sent:
        waiting.push(caller, rows)
    ahead: dict[tuple[str, str], list[float]] = {}  # since when both wait: what the one had more than the other
    longest_s = 0.0
    for step in steps:
        if isinstance(step, tuple):
            waiting.push(*step)
        elif waiting.queue.rows:
            expected = list(waiting.lane)
            taken = waiting.call(step)
            assert taken == expected[: len(taken)]
            rows = Counter({caller: sum(each.rows for each in taken if each.caller == caller) for caller in "abc"})
            call_s = 2.0 ** (rows.total() - 1).bit_length()
            longest_s = max(longest_s, call_s)
            for (one, other), values in ahead.items():
                values.append(values[-1] + (rows[one] - rows[other]) * call_s / rows.total())
        here = {request.caller for lane in waiting.queue.lanes for request in lane}
        ahead = {pair: ahead.get(pair, [0]) for pair in combinations("abc", 2) if here.issuperset(pair)}
        for (one, other), values in ahead.items():
            assert max(values) - min(values) <= 2 * longest_s + 1e-9, (one, other)
