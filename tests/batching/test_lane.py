from math import inf

from hypothesis import given
from hypothesis import strategies as st

from app.batching.priority import PATIENCE_S
from app.batching.queue import Lane
from app.batching.request import PendingRequest
from tests.support.fakes import KEY, FakeFunction, FakeReply, batch_function

timeouts_s = st.sampled_from([inf, 30.0, 0.5, 0.1])
head_starts_s = st.sampled_from([0.0, 0.0, 0.0, 0.4, -0.5])
steps = st.lists(
    st.tuples(st.sampled_from(["add", "add", "leave", "again"]), timeouts_s, head_starts_s, st.integers(0, 9)),
    max_size=40,
)


@given(steps)
def test_a_lane_is_as_urgent_as_its_most_urgent_request_and_in_order_of_rank(
    steps: list[tuple[str, float, float, int]],
) -> None:
    lane = Lane(KEY, batch_function(FakeFunction()))
    for second, (step, timeout_s, priority_offset_s, which) in enumerate(steps):
        now = second / 4
        if step == "add":
            lane.add(PendingRequest({}, 1, FakeReply(), now, now + timeout_s, priority_offset_s))
        elif lane.waiting:
            request = list(lane.waiting)[which % len(lane.waiting)]
            if step == "leave":
                del lane.waiting[request]
                request.lane = None
            elif request is lane.head:
                lane.enter_again(request, now)
        if lane.waiting:
            assert lane.scheduling_key_s == min(request.scheduling_key_s for request in lane.waiting)
            assert lane.oldest_arrival_s == min(request.entered_s for request in lane.waiting)
            ranks = [request.order_key_s for request in lane.waiting]
            assert ranks == sorted(ranks)


def test_who_has_much_time_waits_no_longer_than_the_patience_for_those_who_have_little() -> None:
    patient = PendingRequest({}, 1, FakeReply(), 10.0, inf)
    assert patient.scheduling_key_s == 10.0 + PATIENCE_S
    assert PendingRequest({}, 1, FakeReply(), 10.9, 10.9 + 0.05).scheduling_key_s < patient.scheduling_key_s
    assert PendingRequest({}, 1, FakeReply(), 11.0, 11.0 + 0.05).scheduling_key_s > patient.scheduling_key_s
