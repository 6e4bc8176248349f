"""Messages of several frontends that meet in a turn: who shares a call, and whose rows come back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.batch_sizes import BatchSizes
from app.core.errors import DeadlineExceeded, Overloaded
from app.core.inference import Array, BatchTiming, InferenceRequest
from app.core.interfaces import Cancellable
from app.core.reply import COMPLETED, Answer, CoalescedReply
from app.frontends.engine.messages_of_a_turn import CoalescedMessage, MessagesOfATurn

MAX_ROWS = 8


class Own:
    """The reply of one request."""

    def __init__(self) -> None:
        self.outcomes: list[Any] = []

    def done(self) -> bool:
        return bool(self.outcomes)

    def set_result(self, answer: Answer, /) -> None:
        self.outcomes.append(answer.outputs["y"].ravel().tolist())

    def set_exception(self, error: Exception, /) -> None:
        self.outcomes.append(error)


class Asked(Own):
    """What a frontend sent as one: each row holds the number of its request."""

    def __init__(self, *numbers: int, width: int = 1, **more: Any) -> None:
        super().__init__()
        self.numbers = numbers
        values = np.repeat(np.float32(numbers), width).reshape(-1, width)
        self.request = InferenceRequest({"x": values}, **more)
        self.rows = [1] * len(numbers)
        self.own = [Own() for _ in numbers]
        self.handle: Cancellable = COMPLETED
        self.left = False

    def done(self) -> bool:
        return self.left or super().done() or all(own.outcomes for own in self.own)

    def separate(self) -> Sequence[Own]:
        assert not self.left, "nobody would release the replies of what was cancelled"
        return self.own

    def submitted(self, handle: Cancellable) -> None:
        self.handle = handle

    def leave(self) -> None:
        if not self.done():
            self.left = True
            self.handle.cancel()


class Call:
    """A call of the model, which adds 1000 to each number."""

    def __init__(self, request: InferenceRequest, reply: CoalescedReply) -> None:
        self.x: Array = request.inputs["x"][:, 0]
        self.deadline_s = request.deadline_s
        self.reply = reply
        self.cancelled = False
        self.left: list[int] = []

    def cancel(self) -> None:
        self.cancelled = True

    def cancel_one(self, number: int) -> None:
        self.left.append(number)

    def answer(self) -> None:
        self.reply.set_result(_answer(self.x))

    def take_apart(self) -> None:
        for number, own in zip(self.x, self.reply.separate(), strict=True):
            if not own.done():
                own.set_result(_answer(np.array([number])))

    def fail(self) -> None:
        self.reply.set_exception(Overloaded("full"))


def _answer(x: Array) -> Answer:
    return Answer({"y": x[:, None] + 1000}, BatchTiming(0.0, 0.0, len(x)))


class Model:
    sizes = BatchSizes((1, MAX_ROWS))

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.room = 10**6
        self.failure: Exception | None = None

    def submit_coalesced(self, request: InferenceRequest, arrivals_s: Sequence[float], reply: CoalescedReply) -> Any:
        assert len(arrivals_s) == len(reply.rows)
        if self.failure is not None:
            raise self.failure
        if len(request.inputs["x"]) > self.room:
            return None
        self.calls.append(Call(request, reply))
        return self.calls[-1]

    @property
    def numbers(self) -> list[list[int]]:
        """Of the requests in each call."""
        return [each.x.astype(int).tolist() for each in self.calls]


def play(*turn: Asked, model: Model | None = None, then: Callable[[Model], None] = lambda _: None) -> Model:
    """All of `turn` come in one turn of the event loop."""
    served: Any = model or Model()

    async def main() -> None:
        together = MessagesOfATurn(lambda: 0.0)
        for each in turn:
            together.add(CoalescedMessage(served, each.request, each, _alone(served, each)))
        assert served.calls == []
        await asyncio.sleep(0)
        then(served)

    asyncio.run(main())
    found: Model = served
    return found


def _alone(model: Model, asked: Asked) -> Callable[[], None]:
    def submit() -> None:
        try:
            asked.submitted(model.submit_coalesced(asked.request, [0.0] * len(asked.rows), asked) or COMPLETED)
        except Overloaded as error:
            asked.set_exception(error)

    return submit


def test_messages_of_a_turn_are_one_call_and_each_gets_its_own_rows() -> None:
    asked = Asked(1, 2), Asked(3), Asked(4, 5)
    model = play(*asked, then=lambda model: model.calls[0].answer())
    assert model.numbers == [[1, 2, 3, 4, 5]]
    assert [each.outcomes for each in asked] == [[[1001, 1002]], [[1003]], [[1004, 1005]]]


def test_a_message_that_is_alone_is_submitted_as_it_came() -> None:
    asked = Asked(1, 2)
    assert play(asked).calls[0].reply is asked


def test_a_call_has_no_more_rows_than_the_model_takes() -> None:
    model = play(*(Asked(first, first + 1, first + 2) for first in range(0, 15, 3)))
    assert model.numbers == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11], [12, 13, 14]]


@pytest.mark.parametrize(
    ("deadlines_s", "shared"),
    [
        ((inf, inf), True),
        ((30.0, 30.04), True),
        ((30.0, 30.06), False),
        ((30.0, inf), False),
        ((0.1, 0.109), True),
        ((0.1, 0.111), False),
        ((-1.0, -1.001), False),
    ],
)
def test_only_nearly_equal_deadlines_share_a_call(deadlines_s: tuple[float, float], shared: bool) -> None:
    """A call has the earliest, and no request may miss its own by that of another."""
    model = play(*(Asked(number, deadline_s=deadline_s) for number, deadline_s in enumerate(deadlines_s)))
    assert model.numbers == ([[0, 1]] if shared else [[0], [1]])
    assert model.calls[0].deadline_s == (min(deadlines_s) if shared else deadlines_s[0])


@pytest.mark.parametrize(
    "other", [{"width": 3}, {"signature": "other"}, {"outputs": ("y",)}, {"priority": 1}, {"caller": "10.0.0.2"}]
)
def test_requests_that_differ_in_kind_share_no_call(other: dict[str, Any]) -> None:
    assert play(Asked(0), Asked(1, **other), Asked(2)).numbers == [[0, 2], [1]]


def test_two_models_share_no_call() -> None:
    async def main() -> list[list[list[int]]]:
        models: list[Any] = [Model(), Model()]
        together = MessagesOfATurn(lambda: 0.0)
        for number in range(4):
            model, asked = models[number % 2], Asked(number)
            together.add(CoalescedMessage(model, asked.request, asked, _alone(model, asked)))
        together.submit()
        return [model.numbers for model in models]

    assert asyncio.run(main()) == [[[0, 2]], [[1, 3]]]


def test_what_finds_no_room_together_is_submitted_by_itself() -> None:
    model = Model()
    model.room = 2
    asked = Asked(1, 2), Asked(3)
    play(*asked, model=model, then=lambda model: [each.answer() for each in model.calls] and None)
    assert model.numbers == [[1, 2], [3]]
    assert [each.outcomes for each in asked] == [[[1001, 1002]], [[1003]]]


def test_what_cannot_be_submitted_fails_each_by_itself() -> None:
    model = Model()
    model.failure = Overloaded("full")
    asked = Asked(1), Asked(2)
    play(*asked, model=model)
    assert [str(error) for each in asked for error in each.outcomes] == ["full", "full"]


def test_an_error_is_that_of_each_and_none_shares_the_object() -> None:
    asked = Asked(1), Asked(2)
    play(*asked, then=lambda model: model.calls[0].fail())
    assert [str(each.outcomes[0]) for each in asked] == ["full", "full"]
    assert asked[0].outcomes[0] is not asked[1].outcomes[0]


def test_where_the_earliest_deadline_has_passed_messages_with_time_left_are_submitted_by_themselves() -> None:
    asked = Asked(1, deadline_s=-1.0), Asked(2, deadline_s=-1.0), Asked(3, deadline_s=5.0), Asked(4, deadline_s=5.01)

    def expire(model: Model) -> None:
        for call in model.calls[:2]:
            call.reply.set_exception(DeadlineExceeded("late"))
        assert model.numbers == [[1, 2], [3, 4], [3], [4]]

    play(*asked, then=expire)
    assert [[str(error) for error in each.outcomes] for each in asked] == [["late"], ["late"], [], []]


def test_a_call_is_cancelled_with_the_last_of_its_messages() -> None:
    asked = Asked(1), Asked(2, 3), Asked(4)

    def leave(model: Model) -> None:
        asked[1].leave()
        asked[0].leave()
        assert model.calls[0].left == [1, 2, 0]  # the numbers of their requests
        assert not model.calls[0].cancelled
        asked[2].leave()
        assert model.calls[0].cancelled

    play(*asked, then=leave)


def test_what_left_within_the_turn_is_not_computed() -> None:
    asked = Asked(1), Asked(2)
    asked[0].leave()
    assert play(*asked).numbers == [[2]]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=9), st.sets(st.integers(0, 8)), st.integers(0, 2))
def test_each_gets_its_own_rows_once_whatever_becomes_of_the_calls(sizes: list[int], leave: set[int], how: int) -> None:
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    asked = [Asked(*range(start, start + size)) for start, size in zip(starts, sizes, strict=True)]

    def end(model: Model) -> None:
        for each in [asked[n] for n in leave if n < len(asked)]:
            each.leave()
        for call in model.calls:
            if not call.cancelled:
                (call.answer, call.take_apart, call.fail)[how]()

    model = play(*asked, then=end)
    assert all(len(numbers) <= MAX_ROWS for numbers in model.numbers)
    for each in asked:
        own = [[number + 1000 for number in each.numbers]]
        if each.left:
            assert not each.outcomes
        elif how == 1:
            assert [each.own[n].outcomes for n in range(len(each.own))] == [[[value]] for value in own[0]]
        else:
            assert each.outcomes == own if how == 0 else isinstance(each.outcomes[0], Overloaded)
