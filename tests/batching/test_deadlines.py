from math import inf

from hypothesis import given
from hypothesis import strategies as st

from app.batching.deadlines import Deadlines
from tests.support.fakes import pending


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
        request.reply.set_result(None)
    assert len(deadlines) <= 65


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
