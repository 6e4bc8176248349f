"""Requests that one call computes, of HTTP, gRPC, frontends and pipelines: each gets its own rows or its error, once.

Whatever is joined, cancelled, separated, failed or answered, in whatever order: a part that left gets nothing, the call
is cancelled exactly when its last part is, and nothing keeps the handle of a call that is over.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Sequence
from math import inf
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.batch_sizes import BatchSizes
from app.core.burst import Burst
from app.core.errors import (
    DeadlineExceeded,
    InferenceFailed,
    InvalidRequest,
    ModelNotReady,
    OutOfMemory,
    Overloaded,
    ServingError,
)
from app.core.inference import NO_TIME, InferenceRequest
from app.core.joining.joined_reply import JoinedReply
from app.core.reply import COMPLETED, Answer
from app.frontends.engine.messages_of_a_turn import CoalescedMessage, JoinedMessages
from app.pipelines.flows.members import JoinedMembers, Member
from app.transports.grpc.incoming.call_coalescer import CallCoalescer, JoinedCalls
from app.transports.grpc.taskless import CallsAsOne
from app.transports.http.direct.reply_buffer import ReplyBuffer
from app.transports.http.direct.request_coalescer import JoinedExchanges, RequestCoalescer
from app.transports.http.exchange import Coalesced

NOW_S = 100.0

#: Errors that one part may have brought on the others, and those that all have.
ANOTHERS_FAULT = [InvalidRequest, OutOfMemory]
ALL_HAVE = [Overloaded, ModelNotReady, InferenceFailed]


class Handle:
    """The handle of the call; it notes what is cancelled."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.left: list[int] = []

    def cancel(self) -> None:
        self.cancelled += 1

    def cancel_one(self, number: int) -> None:
        self.left.append(number)


class Model:
    """Takes what is submitted as one. `inline`: its outcome, which comes before `submit_coalesced` returns."""

    name, version, sizes = "m", 1, BatchSizes((1, 64))

    def __init__(self, inline: Answer | Exception | None) -> None:
        self.handle: Handle | None = Handle()
        self.inline = inline

    def submit_coalesced(self, _request: InferenceRequest, _arrivals_s: Sequence[float], reply: Any) -> Any:
        if self.inline is not None:
            _set(reply, self.inline)
        return self.handle


class Part:
    """A request with rows of its own number. What it gets is noted; by itself it is answered at once, as "alone"."""

    trace, http_version, started_s, caller = None, "1.1", NOW_S - 1, ""
    application: ClassVar[Any] = SimpleNamespace(clock=lambda: NOW_S)
    connection: ClassVar[Any] = SimpleNamespace(
        memory=SimpleNamespace(room=SimpleNamespace(is_limited=lambda: False, give=lambda _: None))
    )

    def __init__(self, number: int, rows: Sequence[int], deadline_s: float, broken: bool) -> None:
        self.number, self.rows, self.deadline_s, self.broken = number, rows, deadline_s, broken
        self.got: list[Any] = []
        self.handle: Any = COMPLETED
        self.begun = self.left = False
        options = SimpleNamespace(request_timeout_ms=(deadline_s - self.started_s) * 1e3)
        self.protocol: Any = SimpleNamespace(
            options=options, clock=lambda: NOW_S, tracing=None, finished_together=lambda *_: None
        )

    @property
    def answered(self) -> bool:
        return self.left or bool(self.got)

    def leave(self) -> None:
        if not self.answered:
            self.left = True
            self.handle.cancel()

    def done(self) -> bool:
        return self.answered

    def submitted(self, handle: Any) -> None:
        self.begun = True
        self.handle = handle

    def separate(self) -> Sequence[Part]:
        return [_Row(self) for _ in self.rows]

    # --- what it gets ---

    def begin(self, _content: bytes = b"") -> None:
        self.got.append("alone")

    def record_model(self, model: Any, _signature: str) -> None:
        assert model.name == "m"

    def set_exception(self, error: Exception) -> None:
        self.got.append(error)

    def set_result(self, answer: Answer) -> None:
        self._take(answer.outputs["y"].tolist())

    def reply(self, message: bytes) -> None:
        self._take([*message])

    def ok_lines(self, *_: bytes) -> bytes:
        return b""

    def answer_ok(self, _start: bytes, body: bytes, _asked: Any, _now: float) -> bool:
        self._take([*body])
        return True

    def answer(self, _read: Any, number: int, outputs: Any, _timing: bytes, *, may_be_long: bool) -> None:
        assert number == self.number
        assert isinstance(may_be_long, bool)
        self.got.append(InferenceFailed("broken") if self.broken else outputs["y"].tolist())

    def _take(self, rows: list[int]) -> None:
        if self.broken:
            raise InferenceFailed("broken")
        self.got.append(rows)


class _Row(Part):
    """The reply of one of the requests of a message; all of the message is answered with the last of them."""

    def __init__(self, message: Part) -> None:
        super().__init__(message.number, [1], message.deadline_s, broken=False)
        self.message = message

    def done(self) -> bool:
        return self.answered or self.message.left


def _request(parts: Sequence[Part]) -> InferenceRequest:
    return InferenceRequest({"x": np.zeros((sum(sum(part.rows) for part in parts), 1))})


class Http:
    """Exchanges; the bodies of all are written at once unless one of them is `broken`."""

    @staticmethod
    def join(parts: Sequence[Any], model: Any) -> JoinedReply[Any]:
        rows = [sum(part.rows) for part in parts]
        at_once = not any(part.broken for part in parts)

        def bodies(_numbers: slice, outputs: Any) -> Sequence[bytes] | None:
            values = iter(outputs["y"].tolist())
            return [bytes(next(values) for _ in range(count)) for count in rows] if at_once else None

        unused: Any = None
        read = Coalesced(model, _request(parts), rows, 64, unused, bodies)
        coalescer = RequestCoalescer(ReplyBuffer(), lambda: NOW_S, Burst())
        joined = JoinedExchanges(coalescer, [(part, b"") for part in parts], slice(0, len(parts)), read, read.request)
        coalescer.answers.submit([joined])
        return joined


class Grpc:
    """Calls, which have equally many rows."""

    @staticmethod
    def join(parts: Sequence[Any], model: Any) -> JoinedReply[Any]:
        for part in parts:
            part.rows = parts[0].rows
        step = sum(parts[0].rows)

        def write(outputs: Any) -> Sequence[bytes]:
            values = outputs["y"].tolist()
            return [bytes(values[first : first + step]) for first in range(0, len(values), step)]

        read = CallsAsOne(model, _request(parts), [step] * len(parts), 64, write)
        coalescer = CallCoalescer(Burst(), lambda: None, lambda: NOW_S)
        joined = JoinedCalls(coalescer, [(part, b"") for part in parts], slice(0, len(parts)), read, read.request)
        coalescer.answers.submit([joined])
        return joined


class Frontends:
    """Messages, each of several requests."""

    @staticmethod
    def join(parts: Sequence[Any], model: Any) -> JoinedReply[Any]:
        requests = [InferenceRequest({"x": np.zeros((sum(p.rows), 1))}, deadline_s=p.deadline_s) for p in parts]
        messages = [
            CoalescedMessage(model, request, part, part.begin) for part, request in zip(parts, requests, strict=True)
        ]
        joined = JoinedMessages(messages, lambda: NOW_S)
        joined.submit()
        return joined


class Pipelines:
    """Members, each of which its flow hears of when it leaves."""

    @staticmethod
    def join(parts: Sequence[Any], model: Any) -> JoinedReply[Any]:
        members = [Member(part, sum(part.rows)) for part in parts]
        joined = JoinedMembers(members)

        class Flow:
            def member_left(self) -> None:
                if joined.done() and not any(part.got for part in parts):  # else the flow is over
                    model.handle.cancel()

        for part, member in zip(parts, members, strict=True):
            member.flow = Flow()
            part.handle = member
        if model.inline is not None:
            _set(joined, model.inline)
        return joined


USERS: list[Any] = [Http, Grpc, Frontends, Pipelines]


def _set(reply: Any, outcome: Answer | Exception) -> None:
    if isinstance(outcome, Exception):
        reply.set_exception(outcome)
    else:
        reply.set_result(outcome)


def _answer(rows: Sequence[int]) -> Answer:
    return Answer({"y": np.array([number for number, count in enumerate(rows) for _ in range(count)])}, NO_TIME)


def _parts(sizes: Sequence[Sequence[int]], late: set[int], broken: set[int]) -> list[Part]:
    """Parts of these requests; `late` ones have no time left."""
    return [
        Part(number, rows, NOW_S - 0.5 if number in late else inf, number in broken)
        for number, rows in enumerate(sizes)
    ]


def _expected(user: Any, part: Part, error: type[ServingError] | None, late: set[int]) -> Any:
    """What a part that stays gets: its rows, the type of an error, or "alone"."""
    if error is None:
        return InferenceFailed if part.broken else [part.number] * sum(part.rows)
    in_time = error is DeadlineExceeded and part.number not in late
    alone = user is not Pipelines and (error in ANOTHERS_FAULT or in_time)
    return "alone" if alone else error


#: The rows of the requests of each part: all but messages of frontends are one request.
sizes_of = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=2), min_size=1, max_size=6)
numbers = st.sets(st.integers(0, 5))
errors = st.sampled_from([None, None, *ANOTHERS_FAULT, *ALL_HAVE, DeadlineExceeded])


@pytest.mark.parametrize("user", USERS)
@given(
    sizes=sizes_of, leave=st.lists(st.integers(0, 5)), late=numbers, broken=numbers, error=errors, inline=st.booleans()
)
def test_every_part_that_stays_gets_its_own_rows_or_its_error_once(  # noqa: PLR0917, C901 - what may happen to them
    user: Any,
    sizes: list[list[int]],
    leave: list[int],
    late: set[int],
    broken: set[int],
    error: type[ServingError] | None,
    inline: bool,
) -> None:
    if user is Grpc:
        sizes = [sizes[0]] * len(sizes)
    parts = _parts(sizes, late, broken if error is None else set())
    outcome = _answer([sum(part.rows) for part in parts]) if error is None else error("it failed")
    model = Model(outcome if inline else None)
    joined = user.join(parts, model)
    assert model.handle is not None
    left = []
    for number in leave:
        if number < len(parts) and not parts[number].answered:
            parts[number].leave()
            left.append(number)
            assert model.handle.cancelled == (len(left) == len(parts))
    if not inline and not model.handle.cancelled:
        _set(joined, outcome)

    # 1. What each got.
    for part in parts:
        if part.left:
            assert part.got == []
            continue
        (got,) = part.got
        expected = _expected(user, part, error, late)
        if isinstance(expected, type):
            assert type(got) is expected
        else:
            assert got == expected
    found = [id(got) for part in parts for got in part.got if isinstance(got, Exception)]
    assert len(found) == len(set(found)), "an error is raised by each caller: none may share it"

    # 2. What is over leaves nothing behind.
    assert joined.done()
    assert model.handle.cancelled == (len(left) == len(parts))
    for part in parts:
        part.leave()
        if part.handle is not None:
            part.handle.cancel()
    assert model.handle.cancelled == (len(left) == len(parts))
    if not (model.handle.cancelled or broken):  # pytest keeps the frames of what was logged
        kept = weakref.ref(model.handle)
        model.handle = None
        assert kept() is None


@pytest.mark.parametrize("user", [Http, Grpc, Pipelines])
@given(sizes=sizes_of, seed=st.integers(0, 99), leave=numbers, fail=numbers, broken=numbers)
def test_parts_that_were_separated_are_answered_in_any_order(  # noqa: PLR0917 - what may happen to them
    user: Any, sizes: list[list[int]], seed: int, leave: set[int], fail: set[int], broken: set[int]
) -> None:
    """A part that is separated gets its error as it is: it was computed by itself."""
    if user is Grpc:
        sizes = [sizes[0]] * len(sizes)
    parts = _parts(sizes, set(), set() if user is not Grpc else broken)
    joined = user.join(parts, Model(None))
    own = list(enumerate(joined.separate()))
    random.Random(seed).shuffle(own)  # noqa: S311 - an order
    for number, reply in own:
        part = parts[number]
        if number in leave:
            part.leave()
        assert reply.done() == part.left
        if not reply.done():
            _set(reply, InvalidRequest("no") if number in fail else Answer(_rows(part), NO_TIME))
        assert reply.done()
    for part in parts:
        if part.left:
            assert part.got == []
        elif part.number in fail:
            assert [type(got) for got in part.got] == [InvalidRequest]
        elif part.broken:
            assert [type(got) for got in part.got] == [InferenceFailed]
        else:
            assert part.got == [[part.number] * sum(part.rows)]


def _rows(part: Part) -> dict[str, Any]:
    return {"y": np.full(sum(part.rows), part.number)}


@given(sizes=sizes_of, leave=st.sets(st.integers(0, 5), max_size=5))
def test_messages_of_frontends_are_separated_into_their_requests(sizes: list[list[int]], leave: set[int]) -> None:
    parts = _parts(sizes, set(), set())
    joined = Frontends.join(parts, Model(None))
    for number in leave:
        if number < len(parts):
            parts[number].leave()
    replies = joined.separate()
    assert len(replies) == len(joined.rows) == sum(map(len, sizes))
    expected = [part.left for part in parts for _ in part.rows]
    assert [reply.done() for reply in replies] == expected


@pytest.mark.parametrize("user", [Http, Grpc, Frontends])
@given(order=st.permutations(range(4)))
def test_a_part_that_leaves_is_left_out_by_its_number_and_the_last_one_cancels_the_call(
    user: Any, order: list[int]
) -> None:
    parts, model = _parts([[1, 1]] * 4, set(), set()), Model(None)
    user.join(parts, model)
    for number in order:
        parts[number].leave()
    requests = [[2 * number, 2 * number + 1] if user is Frontends else [number] for number in order[:-1]]
    assert model.handle is not None
    assert model.handle.left == [number for several in requests for number in several]
    assert model.handle.cancelled == 1
