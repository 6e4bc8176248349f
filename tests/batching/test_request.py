import asyncio
import logging
from math import inf

import numpy as np
import pytest

from app.batching.priority import PATIENCE_S
from app.batching.request import LaneKey, PendingRequest, RequestHandle
from app.core.errors import InferenceFailed
from app.core.inference import BatchTiming
from app.core.reply import Answer
from tests.support.fakes import KEY, FakeReply, pending

ANSWER = Answer({"y": np.zeros((1, 2))}, BatchTiming(0.0, 1.0, 1))


def test_its_place_is_its_arrival_less_its_priority() -> None:
    request = PendingRequest({}, 1, FakeReply(), 5.0)
    assert (request.order_key_s, request.scheduling_key_s) == (5.0, 5.0 + PATIENCE_S)
    request.priority_offset_s = 0.25
    assert (request.order_key_s, request.scheduling_key_s) == (4.75, 4.75 + PATIENCE_S)
    request.deadline_s = 5.5
    assert request.scheduling_key_s == 5.25


@pytest.mark.parametrize(("rows", "counted"), [(0, 1), (1, 1), (7, 7)])
def test_a_request_without_rows_counts_as_one(rows: int, counted: int) -> None:
    assert PendingRequest({}, rows, FakeReply(), 0.0).counted_rows == counted


def test_the_first_answer_holds(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        replies: list[asyncio.Future[Answer]] = [asyncio.get_running_loop().create_future() for _ in range(2)]
        answered, failed = [PendingRequest({}, 1, reply, 0.0) for reply in replies]
        answered.answer(ANSWER)
        failed.fail(InferenceFailed("no"))
        for request in (answered, failed):
            request.answer(ANSWER)
            request.fail(InferenceFailed("late"))
        assert await replies[0] is ANSWER
        with pytest.raises(InferenceFailed, match="no"):
            await replies[1]

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert caplog.text == ""


class Broken(FakeReply):
    """Is set, and then its caller's connection fails; or fails before."""

    def __init__(self, *, is_set: bool) -> None:
        super().__init__()
        self._is_set = is_set

    def set_result(self, result: object, /) -> None:
        if self._is_set:
            super().set_result(result)
        raise RuntimeError("the connection failed")


@pytest.mark.parametrize("is_set", [False, True])
def test_a_reply_that_fails_gets_an_error_unless_it_is_set(is_set: bool, caplog: pytest.LogCaptureFixture) -> None:
    reply = Broken(is_set=is_set)
    PendingRequest({}, 1, reply, 0.0).answer(ANSWER)
    assert [type(each) for each in reply.answers] == [Answer if is_set else InferenceFailed]
    assert "the connection failed" in caplog.text


def test_after_its_release_it_keeps_neither_tensors_nor_reply() -> None:
    request = pending(rows=3)
    request.release()
    assert request.inputs == {}
    assert request.reply.done()


class Several(FakeReply):
    """The reply of three requests."""

    rows = (1, 0, 2)

    def __init__(self) -> None:
        super().__init__()
        self.own = [FakeReply() for _ in self.rows]

    def separate(self) -> list[FakeReply]:
        return self.own


def test_coalesced_requests_are_taken_apart_each_with_its_own_rows_time_and_reply() -> None:
    reply, x, s = Several(), np.arange(6).reshape(3, 2), np.array([b"a", b"b", b"c"], object)
    request = PendingRequest({"x": x, "s": s}, 3, reply, 1.0, 9.0, 0.5, "caller")
    request.coalesced_s = [1.0, 2.0, 3.0]
    apart = request.apart()
    assert [each.rows for each in apart] == [1, 0, 2]
    assert [each.reply for each in apart] == reply.own
    assert [each.inputs["x"].tolist() for each in apart] == [[[0, 1]], [], [[2, 3], [4, 5]]]
    assert [each.inputs["s"].tolist() for each in apart] == [[b"a"], [], [b"b", b"c"]]
    assert [each.arrival_s for each in apart] == [1.0, 2.0, 3.0]
    assert {(each.deadline_s, each.priority_offset_s, each.caller) for each in apart} == {(9.0, 0.5, "caller")}
    assert request.inputs == {}


def test_a_request_says_where_it_is() -> None:
    request = PendingRequest({}, 2, FakeReply(), 1.5, inf)
    handle = RequestHandle(request, lambda _: None)
    assert (handle.waits, handle.waiting_rows) == (False, 0)
    assert repr(request) == "<PendingRequest 2 rows, arrived at 1.5 s, due by inf s, taken>"
    request.lane = KEY
    assert repr(request).endswith("waiting>")
    assert (handle.waits, handle.waiting_rows) == (True, 2)
    request.answer(ANSWER)
    assert repr(request).endswith("answered>")


def test_requests_of_any_inner_shape_may_share_a_call_if_all_else_is_equal() -> None:
    key = LaneKey("m", 1, "f", ("y",), ((4,),), True, 2)
    assert key.call == key._replace(shape=((8,),), padded=False).call
    others = [
        {"model": "n"}, {"version": 2}, {"signature": "g"}, {"outputs": ()}, {"generation": 3}, {"suspect": True},
    ]  # fmt: skip
    for other in others:
        assert key._replace(**other).call != key.call  # type: ignore[arg-type]  # of the fields' own types
    assert str(key) == "m/1/f"


def test_a_handle_cancels_its_own_request() -> None:
    cancelled: list[PendingRequest] = []
    request = pending()
    RequestHandle(request, cancelled.append).cancel()
    assert cancelled == [request]


def test_an_error_that_cannot_be_given_to_its_caller_is_told(caplog: pytest.LogCaptureFixture) -> None:
    class Deaf(FakeReply):
        def set_exception(self, exception: BaseException, /) -> None:
            raise RuntimeError("the connection failed")

    PendingRequest({}, 1, Deaf(), 0.0).fail(InferenceFailed("no"))
    assert "the connection failed" in caplog.text
