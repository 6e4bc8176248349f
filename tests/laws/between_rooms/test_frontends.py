"""Between a frontend and the engine an answer is that of its question, and what was counted comes back to zero.

Whatever callers and the engine do: cancel, answer, reject, take apart, be late, in any order and across each other.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.errors import DeadlineExceeded, InvalidRequest, ServingError
from app.core.inference import Array, BatchTiming, InferenceRequest
from app.core.reply import Answer
from app.frontends.channel.tensor_messages import SHARED_FROM_BYTES
from app.frontends.frontend import engine_connection
from tests.frontends.connected_ends import ConnectedEnds, connected_ends
from tests.support.fakes import FakeReply
from tests.support.waiting import HANG_S, until

#: Rows whose numbers travel in the message, and those that take a block of shared memory.
SMALL, LARGE = 1, SHARED_FROM_BYTES // 8

#: Deadlines of half of the requests are over before the others'.
EARLY_S, LATE_S = 10.0, 99.5


@dataclass(eq=False)
class ModelRequests:
    """A question, and who waits for its answer: value `value` in all of its rows."""

    value: float
    rows: int
    outputs: tuple[str, ...]
    deadline_s: float
    reply: FakeReply = field(default_factory=FakeReply)

    def check(self) -> None:
        """What it was answered, if it was: twice its value, and the value, of the outputs that it asked for."""
        assert len(self.reply.answers) <= 1
        for answer in self.reply.answers:
            if isinstance(answer, Answer):
                expected = {"y": 2 * self.value, "z": self.value}
                assert list(answer.outputs) == list(self.outputs or expected)
                for name, output in answer.outputs.items():
                    assert output.shape == (self.rows, 2), self
                    assert (output == expected[name]).all(), self
            else:
                assert isinstance(answer, ServingError)


class Several(FakeReply):
    """The coalesced reply of several questions."""

    def __init__(self, questions: list[ModelRequests]) -> None:
        super().__init__()
        self.questions = questions
        self.rows = [each.rows for each in questions]

    def done(self) -> bool:
        return all(each.reply.done() for each in self.questions)

    def apart(self) -> list[FakeReply]:
        return [each.reply for each in self.questions]

    def set_result(self, result: Any, /) -> None:
        end = 0
        for each in self.questions:
            start, end = end, end + each.rows
            if not each.reply.done():
                outputs = {name: output[start:end] for name, output in result.outputs.items()}
                each.reply.set_result(Answer(outputs, result.timing))

    def set_exception(self, exception: BaseException, /) -> None:
        for each in self.questions:
            if not each.reply.done():
                each.reply.set_exception(exception)


class World:
    """Callers of one frontend, and a model whose answers the schedule decides."""

    def __init__(self, ends: ConnectedEnds) -> None:
        self.ends = ends
        self.asked: list[tuple[Any, list[ModelRequests]]] = []
        self._open: list[tuple[Any, Array]] = []
        self._seen = 0

    def ask(self, outputs: tuple[str, ...], rows: list[int], deadline_s: float) -> None:
        first = sum(len(questions) for _, questions in self.asked)
        questions = [ModelRequests(float(first + n), count, outputs, deadline_s) for n, count in enumerate(rows)]
        x = np.concatenate([np.full((each.rows, 2), each.value, np.float32) for each in questions])
        inputs: dict[str, Array] = {"x": x, "text": np.array([b"w"] * len(x), object)}
        request = InferenceRequest(inputs, "serving_default", outputs, deadline_s)
        if len(questions) == 1:
            handle: Any = self.ends.remote.submit(request, questions[0].reply)
        else:
            reply: Any = Several(questions)
            handle = self.ends.remote.submit_coalesced(request, [0.0] * len(rows), reply)
        self.asked.append((handle, questions))

    def leave(self, number: int) -> None:
        if self.asked:
            handle, questions = self.asked[number % len(self.asked)]
            self._leave(handle, questions, number % len(questions))

    def all_leave(self) -> None:
        for handle, questions in self.asked:
            for place in range(len(questions)):
                self._leave(handle, questions, place)

    @staticmethod
    def _leave(handle: Any, questions: list[ModelRequests], place: int) -> None:
        """A caller goes; the last one of a coalesced request takes that along."""
        each = questions[place]
        if not each.reply.done():
            each.reply.set_exception(ServingError("it left"))
            if all(other.reply.done() for other in questions):
                handle.cancel()
            else:
                handle.cancel_one(place)

    def open(self) -> list[tuple[Any, Array]]:
        """What the model has not answered: replies, and their rows."""
        for submitted in self.ends.model.submitted[self._seen :]:
            self._open.append((submitted.reply, submitted.request.inputs["x"]))
        self._seen = len(self.ends.model.submitted)
        self._open = [(reply, x) for reply, x in self._open if not reply.done()]
        return self._open

    def respond(self, number: int, how: str) -> None:
        """The model answers a request, or rejects it, or takes it apart and answers all but one."""
        waiting = self.open()
        if not waiting:
            return
        reply, x = waiting.pop(number % len(waiting))
        if how == "apart" and hasattr(reply, "apart"):
            end, parts = 0, []
            for rows, own in zip(list(reply.rows), reply.apart(), strict=True):
                start, end = end, end + rows
                parts.append((own, x[start:end]))
            waiting.append(parts.pop(number % len(parts)))
            for own, rows_of_it in parts:
                if not own.done():
                    self._answer(own, rows_of_it)
        elif how == "reject":
            reply.set_exception(InvalidRequest("no"))
        else:
            self._answer(reply, x)

    @staticmethod
    def _answer(reply: Any, x: Array) -> None:
        reply.set_result(Answer({"y": x * 2, "z": x.astype(np.int64)}, BatchTiming(0.0, 0.0, len(x))))

    def pass_time(self, now_s: float) -> None:
        self.ends.now_s = now_s
        self.ends.engine._give_up_late()

    async def settle(self) -> None:
        """All messages of both directions have arrived."""
        await self.ends.engine.query("anything")

    def check(self) -> None:
        for _, questions in self.asked:
            for each in questions:
                each.check()


OUTPUTS = [("y",), ("z",), ("y", "z"), ("z", "y"), ()]

steps = st.one_of(
    st.tuples(
        st.just("ask"),
        st.sampled_from(OUTPUTS),
        st.lists(st.sampled_from([SMALL, SMALL, 2, LARGE]), min_size=1, max_size=3),
        st.sampled_from([EARLY_S, LATE_S]),
    ),
    st.tuples(st.just("leave"), st.integers(0, 30)),
    st.tuples(st.just("respond"), st.integers(0, 30), st.sampled_from(["answer", "answer", "reject", "apart"])),
    st.tuples(st.just("settle")),
    st.tuples(st.just("early deadlines")),
)

#: How it ends: the callers leave, the engine hangs until all deadlines are over, it answers all, or it goes.
ENDS = ["leave", "deadlines", "answers", "engine goes"]


def play(schedule: list[tuple[Any, ...]], end: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(HANG_S), connected_ends(3 * SHARED_FROM_BYTES) as ends:
            world = World(ends)
            for step in schedule:
                match step:
                    case ("ask", outputs, rows, deadline_s):
                        world.ask(outputs, rows, deadline_s)
                    case ("leave", number):
                        world.leave(number)
                    case ("respond", number, how):
                        world.respond(number, how)
                    case ("early deadlines",):
                        world.pass_time(EARLY_S + 1)
                    case _:
                        await world.settle()
                world.check()
            await world.settle()
            idle = asyncio.ensure_future(ends.engine.idle())
            await asyncio.sleep(0)
            await finish(world, end)
            for _ in range(3):  # what is known here already needs no message
                await asyncio.sleep(0)
            assert idle.done(), f"{ends.engine}: a drain would wait"
            await all_is_zero(world)

    asyncio.run(main())


async def finish(world: World, end: str) -> None:
    ends = world.ends
    replies = [each.reply for _, questions in world.asked for each in questions]
    if end == "leave":
        world.all_leave()
    elif end == "deadlines":
        world.pass_time(LATE_S + 1)
        assert all(each.done() for each in replies), "a request outlived its deadline"
    elif end == "engine goes":
        ends.frontend._transport.abort()
        await ends.engine.closed
    else:
        while world.open():
            world.respond(0, "answer")
        await until(lambda: not ends.engine._pending)
    world.check()
    assert all(each.done() for each in replies), "a caller was never answered"


async def all_is_zero(world: World) -> None:
    ends = world.ends
    assert not ends.engine._pending
    world.asked.clear()
    world._open.clear()
    if ends.engine.closed.done():
        return
    await world.settle()
    assert not ends.frontend._waiting
    for submitted in ends.model.submitted:
        submitted.request.inputs.clear()
    for _ in range(3):
        await world.settle()  # freed blocks are told with the next message
    assert not ends.engine._requests._blocks._taken
    assert not ends.frontend._answers._blocks._taken


@settings(max_examples=60, deadline=None)
@given(schedule=st.lists(steps, min_size=1, max_size=24), end=st.sampled_from(ENDS))
def test_answers_are_those_of_their_questions_and_nothing_is_kept(schedule: list[tuple[Any, ...]], end: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_connection, "_MAX_CALLS", 4)  # of five that are asked
        play(schedule, end)


@pytest.mark.parametrize("end", ENDS)
def test_so_it_is_where_the_engine_takes_requests_apart_and_their_callers_leave(end: str) -> None:
    ask = ("ask", ("y",), [SMALL, 2, SMALL], LATE_S)
    for respond in (("settle",), ("respond", 0, "apart"), ("respond", 2, "apart")):
        play([ask, ("settle",), respond, ("leave", 1), ask, ("settle",)], end)
        play([ask, ("settle",), respond, ("settle",), ("leave", 0), ("settle",)], end)


def test_a_call_number_is_given_to_another_call_only_when_its_first_one_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of five calls are asked in turn, each more often than there are numbers."""
    monkeypatch.setattr(engine_connection, "_MAX_CALLS", 4)
    for order in ([0, 1, 2, 3, 0, 1, 2, 3], [0, 1, 2, 3, 4, 1, 0, 2, 3, 4], [4, 3, 0, 4, 3, 0, 1, 4]):
        steps = [("ask", OUTPUTS[each], [SMALL], LATE_S) for each in order]
        play([each for step in steps for each in (step, ("settle",), ("respond", 0, "answer"), ("settle",))], "answers")


def test_who_asks_late_is_told_of_the_deadline() -> None:
    async def main() -> None:
        async with connected_ends() as ends:
            world = World(ends)
            world.ask(("y",), [SMALL, SMALL], EARLY_S)
            await world.settle()
            world.respond(0, "apart")
            await world.settle()
            world.pass_time(EARLY_S + 1)
            kinds = [type(each.reply.answers[0]) for _, questions in world.asked for each in questions]
            assert kinds[0] is DeadlineExceeded

    asyncio.run(main())
