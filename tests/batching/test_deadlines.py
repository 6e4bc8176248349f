import asyncio
from math import inf

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.batching.deadlines import Deadlines, Expiry
from app.batching.request import PendingRequest
from app.batching.state import BatcherOptions, BatchingState
from app.core.errors import DeadlineExceeded
from app.core.events import ignore
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import (
    KEY,
    FakeDevice,
    FakeFunction,
    FakeReply,
    batch_function,
    fake_time,
    pending,
    run_in_fake_time,
)


def test_earliest_first_and_only_what_has_come() -> None:
    deadlines = Deadlines()
    late, early, never = pending(deadline_s=2.0), pending(deadline_s=1.0), pending()
    for request in (late, early, never):
        deadlines.push(request)
    assert len(deadlines) == 2
    assert deadlines.next_s == 1.0
    assert deadlines.pop_expired(0.5) == []
    assert deadlines.pop_expired(2.0) == [early, late]
    assert deadlines.next_s == inf


def test_the_answered_do_not_expire() -> None:
    deadlines = Deadlines()
    answered, waiting = pending(deadline_s=1.0), pending(deadline_s=2.0)
    deadlines.push(answered)
    deadlines.push(waiting)
    answered.reply.set_result(None)
    assert deadlines.next_s == 2.0
    assert deadlines.pop_expired(3.0) == [waiting]


def test_the_answered_do_not_pile_up() -> None:
    deadlines = Deadlines()
    for i in range(10_000):
        request = pending(deadline_s=30.0 + i)
        deadlines.push(request)
        assert len(deadlines) <= 64
        request.reply.set_result(None)


def test_there_are_at_most_about_twice_as_many_as_requests_in_progress() -> None:
    deadlines = Deadlines()
    for i in range(11_000):
        request = pending(deadline_s=1e6 - i)
        deadlines.push(request)
        if i >= 1000:
            request.reply.set_result(None)
        assert len(deadlines) <= 2 * 1000
    assert deadlines.next_s == 1e6 - 999


class LookedAt(FakeReply):
    """Counts how often somebody asked whether it is done."""

    looks = 0

    def done(self) -> bool:
        LookedAt.looks += 1
        return super().done()


def test_how_often_requests_are_looked_at_does_not_grow_with_how_many_there_are() -> None:
    deadlines = Deadlines()
    LookedAt.looks = 0
    for i in range(10_000):
        deadlines.push(PendingRequest({}, 1, LookedAt(), 0.0, 30.0 + i))
    assert 0 < LookedAt.looks <= 2 * 10_000


def test_what_is_left_after_the_answered_went_expires_in_its_order() -> None:
    deadlines, left, random = Deadlines(), [], np.random.default_rng(1)
    for i in range(1000):
        request = pending(deadline_s=random.random())
        deadlines.push(request)
        if i % 3:
            request.reply.set_result(None)
        else:
            left.append(request.deadline_s)
    assert [request.deadline_s for request in deadlines.pop_expired(1.0)] == sorted(left)


# --- the timer ---


class Timer:
    """An Expiry, and when it called back."""

    def __init__(self) -> None:
        self.fired_s, start_s = list[float](), fake_time()
        state = BatchingState([FakeDevice()], WorkConserving(), BatcherOptions(10), ignore, fake_time)
        self.queue = state.queue
        self.expiry = Expiry(state, lambda: self.fired_s.append(fake_time() - start_s))

    def submit(self, timeout_s: float) -> FakeReply:
        reply = FakeReply()
        request = PendingRequest({}, 1, reply, fake_time(), fake_time() + timeout_s)
        self.queue.push(KEY, batch_function(FakeFunction()), request)
        self.expiry.watch(request)
        return reply


def test_the_timer_fires_once_for_each_deadline_and_those_who_wait_leave_the_queue() -> None:
    async def main() -> None:
        timer = Timer()
        replies = [timer.submit(timeout_s) for timeout_s in (5.0, 3.0, 4.0)]
        await asyncio.sleep(4.5)
        assert [len(reply.answers) for reply in replies] == [0, 1, 1]
        assert isinstance(replies[1].answers[0], DeadlineExceeded)
        assert timer.queue.rows == 1
        await asyncio.sleep(10.0)
        assert timer.fired_s == [3.0, 4.0, 5.0]
        assert (timer.queue.rows, timer.expiry.at_s) == (0, inf)

    run_in_fake_time(main())


def test_a_deadline_that_has_passed_fires_in_the_next_turn() -> None:
    async def main() -> None:
        timer = Timer()
        reply = timer.submit(-1.0)
        await asyncio.sleep(0.001)
        assert timer.fired_s == [0.0]
        assert reply.done()

    run_in_fake_time(main())


def test_after_the_end_no_timer_fires() -> None:
    async def main() -> None:
        timer = Timer()
        timer.expiry.close()
        timer.submit(3.0)
        timer.expiry.close()
        await asyncio.sleep(10.0)
        assert timer.fired_s == []

    run_in_fake_time(main())


@given(st.lists(st.tuples(st.floats(0, 10), st.booleans()), max_size=300), st.floats(0, 10))
def test_exactly_the_unanswered_expire(entries: list[tuple[float, bool]], now: float) -> None:
    deadlines = Deadlines()
    requests = []
    for deadline_s, answered in entries:
        request = pending(deadline_s=deadline_s)
        deadlines.push(request)
        if answered:
            request.reply.set_result(None)
        requests.append((request, answered))
    expected = sorted(r.deadline_s for r, answered in requests if not answered and r.deadline_s <= now)
    assert [request.deadline_s for request in deadlines.pop_expired(now)] == expected
    assert deadlines.next_s > now
