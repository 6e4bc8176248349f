import pytest

from app.batching.admission import check_in_time, check_open
from app.batching.devices import Slots
from app.batching.policy import WorkConserving
from app.batching.queue import RequestQueue
from app.batching.request import LaneKey, PendingRequest
from app.batching.scheduler import Schedule
from app.core.errors import DeadlineExceeded, Overloaded, RequestTooLarge, ShuttingDown
from tests.support.fakes import FakeDevice, FakeFunction, FakeReply, batch_function


def test_the_door_is_open_for_what_fits_and_has_time() -> None:
    check_open(4, 4, 10.0, 9.0, draining=False)
    with pytest.raises(ShuttingDown):
        check_open(4, 4, 10.0, 9.0, draining=True)
    with pytest.raises(RequestTooLarge):
        check_open(5, 4, 10.0, 9.0, draining=False)
    with pytest.raises(DeadlineExceeded):
        check_open(4, 4, 10.0, 10.0, draining=False)


class Line:
    """Requests of several models, one row in each call, which takes a second."""

    def __init__(self, **weights: float) -> None:
        self.queue = RequestQueue(1000)
        self.slots = Slots([FakeDevice()], lambda: 0.0)
        self.schedule = Schedule(WorkConserving(), weights)

    def push(self, model: str, timeout_s: float, arrival_s: float = 0.0) -> PendingRequest:
        request = PendingRequest({}, 1, FakeReply(), arrival_s, arrival_s + timeout_s)
        self.queue.push(LaneKey(model, 1, "f"), batch_function(FakeFunction(), 1, seeds={1: 1.0}), request)
        return request

    def check(self, request: PendingRequest) -> None:
        check_in_time(request, self.queue, self.slots, self.schedule, request.arrival_s)


def test_who_would_be_late_behind_others_is_refused_and_leaves() -> None:
    line = Line()
    for _ in range(9):
        line.push("resnet", 30.0)
    late = line.push("bert", 5.0, arrival_s=0.1)
    with pytest.raises(Overloaded, match="has 5000 ms left, and answers take 11000 ms") as rejected:
        line.check(late)
    assert rejected.value.retry_after_s == pytest.approx(6.05)
    assert line.queue.rows == 9


def test_whose_model_has_a_share_that_suffices_is_not_refused_because_of_others() -> None:
    line = Line(bert=3, resnet=1)
    for _ in range(9):
        line.push("resnet", 30.0)
    line.check(line.push("bert", 5.0, arrival_s=0.1))
    line.check(line.push("bert", 5.0, arrival_s=0.2))
    line.check(line.push("bert", 5.0, arrival_s=0.3))
    with pytest.raises(Overloaded):
        line.check(line.push("bert", 5.0, arrival_s=0.4))  # four calls at three of four
