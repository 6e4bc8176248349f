"""A frontend's end and the engine's end of a connection, tied to each other."""

from __future__ import annotations

import asyncio
import os
import pickle
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import pytest

from app.core.batch_sizes import BatchSizes
from app.core.errors import DeadlineExceeded, InvalidRequest, ModelNotReady, ShuttingDown, SignatureNotFound
from app.core.events import RequestsFinished
from app.core.inference import BatchTiming, InferenceRequest, ModelSignature, TensorSpec
from app.core.optional_inputs import with_declared_masks
from app.core.reply import Answer
from app.frontends.channel.catalog_snapshot import CatalogSnapshot
from app.frontends.channel.messages import MessageKind
from app.frontends.channel.tensor_messages import SHARED_FROM_BYTES
from app.frontends.frontend import engine_connection
from app.transports.fairness.turns import Turns
from tests.frontends.connected_ends import SIGNATURES, ConnectedEnds, connected_ends, rejection
from tests.support.fakes import FakeReply
from tests.support.waiting import HANG_S, until

Scenario = Callable[[ConnectedEnds], Awaitable[None]]

LARGE = SHARED_FROM_BYTES // 8  # rows of two float32


def play(scenario: Scenario, memory_bytes: int | None = None) -> None:
    async def main() -> None:
        async with connected_ends(*[] if memory_bytes is None else [memory_bytes]) as made, asyncio.timeout(HANG_S):
            await scenario(made)

    asyncio.run(main())


def test_a_request_arrives_as_it_was_sent_and_so_does_its_answer() -> None:
    async def scenario(made: ConnectedEnds) -> None:
        asked = made.ask(3.0, b"word", outputs=("z", "y"))
        (submitted,) = await made.submitted(1)
        request = submitted.request
        assert request.inputs["x"].tolist() == [[3.0, 3.0]]
        assert request.inputs["text"].tolist() == [b"word"]
        assert (request.signature, request.outputs) == ("serving_default", ("z", "y"))
        assert (request.deadline_s, request.priority, request.caller) == (99.5, 1, "10.0.0.1")
        submitted.answer(y=np.array([[6.0]], np.float32), z=np.array([[5]]))
        response = await asked
        assert {name: output.tolist() for name, output in response.outputs.items()} == {"z": [[5]], "y": [[6.0]]}
        assert (response.model, response.version, response.timing) == ("m", 1, BatchTiming(0.25, 0.5, 3))
        assert submitted.cancelled == 1

    play(scenario)


def test_the_deadline_of_a_request_that_the_engine_does_not_answer_holds() -> None:
    """The engine's process may be stopped. What it sends later is skipped."""

    async def scenario(made: ConnectedEnds) -> None:
        asked = [made.ask(1.0, deadline_s=seconds) for seconds in (50.0, 20.0, 10.0, 30.0)]
        submitted = await made.submitted(4)
        assert made.engine._looks_s == 10.0
        for now_s, left in ((10.05, 4), (10.2, 3), (30.2, 1)):
            made.now_s = now_s
            made.engine._give_up_late()
            assert len(made.engine._pending) == left
        for late in asked[1:]:
            assert isinstance(await rejection(late), DeadlineExceeded)
        assert made.engine._looks_s == 50.0
        await until(lambda: sum(each.cancelled for each in submitted) == 3)  # an engine that was only slow
        submitted[0].answer(y=np.ones((1, 2), np.float32))
        assert (await asked[0]).outputs["y"].tolist() == [[1, 1]]

    play(scenario)


def test_the_deadline_of_a_stopped_engine_is_looked_at_in_time() -> None:
    async def scenario(made: ConnectedEnds) -> None:
        made.engine._clock = time.monotonic
        asked = made.ask(deadline_s=time.monotonic())
        assert isinstance(await rejection(asked), DeadlineExceeded)

    play(scenario)


def test_a_query_has_a_limit_where_it_is_given_one() -> None:
    async def scenario(made: ConnectedEnds) -> None:
        asked = asyncio.ensure_future(made.engine.query("hangs", timeout_s=5.0))
        await until(lambda: made.engine._looks_s == 5.0)
        made.now_s = 5.2
        made.engine._give_up_late()
        assert isinstance(await rejection(asked), DeadlineExceeded)

    play(scenario)


def test_masks_that_callers_leave_out_are_sent() -> None:
    async def scenario(made: ConnectedEnds) -> None:
        usual = SIGNATURES["serving_default"]
        inputs = {**usual.inputs, "lengths": TensorSpec("lengths", np.dtype(np.int32), (None,))}
        signature = ModelSignature("serving_default", inputs, usual.outputs)
        made.remote.signatures = with_declared_masks({"serving_default": signature}, {"lengths": "x"})
        made.model.signature = lambda name: signature  # type: ignore[method-assign]  # both ends know it
        asked = made.ask(3.0, outputs=())
        (submitted,) = await made.submitted(1)
        assert submitted.request.inputs["lengths"].tolist() == [2]
        assert submitted.request.inputs["x"].tolist() == [[3, 3]]
        submitted.answer(y=np.ones((1, 2), np.float32), z=np.ones((1, 2), np.int64))
        await asked

    play(scenario)


def test_requests_are_submitted_in_order_and_answered_in_any() -> None:
    async def scenario(made: ConnectedEnds) -> None:
        asked = [made.ask(float(n)) for n in range(50)]
        submitted = await made.submitted(50)
        assert [each.request.inputs["x"][0, 0] for each in submitted] == list(range(50))
        for each in reversed(submitted):
            each.answer(y=each.request.inputs["x"] * 2)
        answers = [(await each).outputs["y"][0, 0] for each in asked]
        assert answers == [2.0 * n for n in range(50)]

    play(scenario)


def test_what_is_asked_in_one_turn_goes_out_in_one_write() -> None:
    async def scenario(made: ConnectedEnds) -> None:
        writes: list[bytes] = []
        transport = made.engine._transport
        noting: Any = Writes(writes, transport.write)
        made.engine._transport = noting
        asked = [made.ask() for _ in range(20)]
        for each in await made.submitted(20):
            each.answer(y=each.request.inputs["x"])
        await asyncio.gather(*asked)
        made.engine._transport = transport
        assert len(writes) == 1

    play(scenario)


class Writes:
    def __init__(self, kept: list[bytes], write: Callable[[bytes], None]) -> None:
        self._kept = kept
        self._write = write

    def is_closing(self) -> bool:
        return False

    def write(self, content: bytes) -> None:
        self._kept.append(content)
        self._write(content)


def test_errors_cross() -> None:
    async def scenario(made: ConnectedEnds) -> None:
        assert type(await rejection(made.ask(word=b"reject"))) is InvalidRequest
        asked = made.ask()
        (submitted,) = await made.submitted(1)
        submitted.reply.set_exception(DeadlineExceeded("too late"))
        assert str(await rejection(asked)) == "too late"
        assert submitted.cancelled == 1

    play(scenario)


def test_a_bug_on_either_way_is_logged_and_stays_a_bug(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(made: ConnectedEnds) -> None:
        with pytest.raises(RuntimeError, match="KeyError"):
            await made.ask(word=b"bug")
        asked = made.ask()
        (submitted,) = await made.submitted(1)
        submitted.answer(w=np.zeros(1))
        with pytest.raises(RuntimeError, match="KeyError"):
            await asked
        assert "failed with a bug" in caplog.text
        assert "An answer of signature 'serving_default' cannot be sent" in caplog.text

    play(scenario)


def test_names_and_dtypes_are_rejected_before_anything_is_sent() -> None:
    async def scenario(made: ConnectedEnds) -> None:
        x, text = np.zeros((1, 2), np.float32), np.array([b"w"], object)
        for inputs, signature, outputs in (
            ({"x": x}, "serving_default", ()),
            ({"x": x.astype(">f4"), "text": text}, "serving_default", ()),
            ({"x": x, "text": text}, "serving_default", ("nope",)),
            ({"x": x, "text": text}, "nope", ()),
        ):
            error = await rejection(made.remote.infer(InferenceRequest(inputs, signature, outputs)))
            assert isinstance(error, InvalidRequest | SignatureNotFound)
        assert made.model.submitted == []

    play(scenario)


def test_a_request_whose_caller_leaves_is_cancelled() -> None:
    async def scenario(made: ConnectedEnds) -> None:
        leaving, staying = made.ask(1.0), made.ask(2.0)
        first, second = await made.submitted(2)
        leaving.cancel()
        assert repr(made.engine) == "<EngineConnection open, 2 pending>"
        await asyncio.gather(leaving, return_exceptions=True)
        await until(lambda: first.cancelled > 0)
        assert first.reply.done()
        assert not second.reply.done()
        second.answer(y=np.zeros((1, 2), np.float32))
        await staying
        assert repr(made.engine) == "<EngineConnection open, 0 pending>"
        assert repr(made.frontend) == "<FrontendConnection 0 requests waiting, 0 queries>"

    play(scenario)


def test_an_answer_that_crosses_its_cancellation_harms_no_other_request() -> None:
    async def scenario(made: ConnectedEnds) -> None:
        leaving = made.ask(1.0, rows=LARGE)
        (submitted,) = await made.submitted(1)
        submitted.answer(y=np.ones((LARGE, 2), np.float32))
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        asked = made.ask(2.0)
        (await made.submitted(2))[1].answer(y=np.ones((1, 2), np.float32))
        await asked
        await until_free(made)

    play(scenario)


def test_blocks_of_shared_memory_come_back() -> None:
    async def scenario(made: ConnectedEnds) -> None:
        for n in range(8):
            asked = made.ask(float(n), rows=LARGE)
            submitted = (await made.submitted(n + 1))[n]
            assert len(made.engine._requests._blocks._taken) == 1
            np.testing.assert_array_equal(submitted.request.inputs["x"], np.full((LARGE, 2), n, np.float32))
            submitted.answer(y=submitted.request.inputs["x"] * 2)
            np.testing.assert_array_equal((await asked).outputs["y"], np.full((LARGE, 2), 2 * n, np.float32))
            del asked
            await until_free(made)

    play(scenario, memory_bytes=2 * SHARED_FROM_BYTES)


async def until_free(made: ConnectedEnds) -> None:
    """Both shared memories are free as soon as something else is sent in both directions."""
    for submitted in made.model.submitted:
        submitted.request.inputs.clear()
    while any(memory._blocks._taken for memory in (made.engine._requests, made.frontend._answers)):
        await made.engine.query("anything")


def test_full_shared_memory_is_no_obstacle() -> None:
    async def scenario(made: ConnectedEnds) -> None:
        asked = [made.ask(float(n), rows=LARGE) for n in range(3)]
        for n, each in enumerate(await made.submitted(3)):
            np.testing.assert_array_equal(each.request.inputs["x"], np.full((LARGE, 2), n, np.float32))
            each.answer(y=each.request.inputs["x"])
        for n, each in enumerate(asked):
            assert (await each).outputs["y"][0, 0] == n

    play(scenario, memory_bytes=SHARED_FROM_BYTES)


def test_an_engine_that_goes_fails_what_it_was_asked_with_a_retry() -> None:
    async def scenario(made: ConnectedEnds) -> None:
        asked, query = made.ask(), asyncio.ensure_future(made.engine.query("anything"))
        (submitted,) = await made.submitted(1)
        await query
        made.frontend._transport.close()
        error = await rejection(asked)
        assert (type(error), error.retry_after_s) == (ModelNotReady, 1.0)
        assert type(await rejection(made.ask())) is ModelNotReady
        assert type(await rejection(made.engine.query("anything"))) is ModelNotReady
        assert submitted.cancelled == 1

    play(scenario)


def test_a_frontend_that_goes_takes_its_requests_along() -> None:
    async def scenario(made: ConnectedEnds) -> None:
        asked = [made.ask() for _ in range(3)]
        submitted = await made.submitted(3)
        seen = made.frontend.sync()
        made.engine._transport.abort()
        await asyncio.gather(*asked, return_exceptions=True)
        await seen
        await until(lambda: not made.served.connections)
        assert [each.cancelled for each in submitted] == [1, 1, 1]
        assert all(each.reply.done() for each in submitted)

    play(scenario)


def test_a_model_that_is_gone_is_not_ready() -> None:
    async def scenario(made: ConnectedEnds) -> None:
        known = made.ask()
        (await made.submitted(1))[0].answer(y=np.zeros((1, 2), np.float32))
        await known
        made.served.models.clear()
        for outputs in (("y",), ("z",)):  # a call that was made before, and a new one
            error = await rejection(made.ask(outputs=outputs, rows=LARGE))
            assert type(error) is ModelNotReady
            assert "being unloaded" in str(error)
        await until_free(made)

    play(scenario)


def test_calls_beyond_the_limit_are_numbered_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_connection, "_MAX_CALLS", 2)

    async def scenario(made: ConnectedEnds) -> None:
        wanted = [("y",), ("z",), ("y", "z"), ("y",), ("z", "y")]
        for n, outputs in enumerate(wanted):
            asked = made.ask(outputs=outputs)
            submitted = (await made.submitted(n + 1))[n]
            assert submitted.request.outputs == outputs
            submitted.answer(y=np.full((1, 2), n, np.float32), z=np.full((1, 2), -n))
            assert list((await asked).outputs) == list(outputs)

    play(scenario)


def test_draining_rejects_new_requests_and_waits_for_the_others() -> None:
    async def scenario(made: ConnectedEnds) -> None:
        asked = made.ask()
        (submitted,) = await made.submitted(1)
        made.engine.draining = True
        assert type(await rejection(made.ask())) is ShuttingDown
        idle = asyncio.ensure_future(made.engine.idle())
        await asyncio.sleep(0)
        assert not idle.done()
        submitted.answer(y=np.zeros((1, 2), np.float32))
        await idle
        await asked
        await made.engine.idle()

    play(scenario)


def test_of_a_frontend_that_has_gone_no_query_begins_and_none_waits() -> None:
    """Those that wait for their turn would be computed for nobody, all in one turn of the loop."""

    async def scenario(made: ConnectedEnds) -> None:
        computed: list[str] = []

        async def query(name: str, _: Sequence[Any]) -> Any:
            computed.append(name)

        made.frontend._engine.query = query  # type: ignore[method-assign]  # its answers do not matter
        await made.engine.query("before")
        made.frontend._turns = turns = Turns(lambda _: None)  # a turn that does not end
        turns._count(made.frontend._pages.peer, 1.0)
        asked = [asyncio.ensure_future(made.engine.query("waits")) for _ in range(3)]
        await until(lambda: len(made.frontend._queries) == 3)
        made.frontend._transport.abort()
        await until(lambda: not made.frontend._queries)
        assert computed == ["before"]
        assert {type(await rejection(each)) for each in asked} == {ModelNotReady}
        assert not turns.waits(made.frontend._pages)

    play(scenario)


def test_queries_are_answered_or_rejected(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(made: ConnectedEnds) -> None:
        assert await made.engine.query("sum", 1, "two") == ("sum", 1, "two")
        assert str(await rejection(made.engine.query("rejected"))) == "no such thing"
        with pytest.raises(RuntimeError):
            await made.engine.query("broken")
        assert "The query 'broken' failed with a bug" in caplog.text

    play(scenario)


def test_what_is_told_is_told_in_order() -> None:
    async def scenario(made: ConnectedEnds) -> None:
        finished = RequestsFinished("rest", "200", "m\udc80", 1, "s", (0.5,))
        made.engine.send(MessageKind.EVENT, "RequestsFinished", *finished)
        made.frontend.send(MessageKind.CATALOG, pickle.dumps(CatalogSnapshot(complete=True, default_model="m")))
        made.frontend.send(MessageKind.HEALTH, [], ["not now"], ["m is broken"])
        await made.frontend.sync()
        assert made.observer.heard == [
            CatalogSnapshot(complete=True, default_model="m"),
            ((), ("not now",), ("m is broken",)),
            "send_counts",
        ]
        assert made.served.told == [finished]

    play(scenario)


class Coalesced(FakeReply):
    """The reply of two requests, of one row and of two."""

    rows = (1, 2)

    def __init__(self) -> None:
        super().__init__()
        self.own = [FakeReply(), FakeReply()]

    def done(self) -> bool:
        return super().done() or all(reply.done() for reply in self.own)

    def apart(self) -> list[FakeReply]:
        return self.own


def coalesce(ends: ConnectedEnds) -> Coalesced:
    return coalesced_and_handle(ends)[0]


def coalesced_and_handle(ends: ConnectedEnds) -> tuple[Coalesced, Any]:
    inputs = {"x": np.array([[1.0, 1], [2, 2], [3, 3]], np.float32), "text": np.array([b"a", b"b", b"c"], object)}
    reply = Coalesced()
    request = InferenceRequest(inputs, "serving_default", ("y",), 99.5)
    return reply, ends.remote.submit_coalesced(request, [0.0, 0.0], reply)


def test_coalesced_requests_are_answered_as_one() -> None:
    async def main() -> None:
        async with connected_ends() as ends:
            reply = coalesce(ends)
            (submitted,) = await ends.submitted(1)
            joined: Any = submitted.reply
            assert list(joined.rows) == [1, 2]
            submitted.answer(y=np.float32([[1], [2], [3]]))
            await until(reply.done)
            (answer,) = reply.answers
            assert isinstance(answer, Answer)
            assert len(answer.outputs["y"]) == 3

    asyncio.run(main())


@pytest.mark.parametrize("drains", [False, True])
def test_coalesced_requests_that_the_engine_takes_apart_are_answered_one_by_one(*, drains: bool) -> None:
    async def main() -> None:
        async with connected_ends() as ends:
            reply = coalesce(ends)
            await ends.submitted(1)
            ends.engine.draining = drains  # they were accepted before
            idle = asyncio.ensure_future(ends.engine.idle())
            first, second = ends.model.coalesced[0].apart()
            second.set_exception(InvalidRequest("its values are bad"))
            await until(reply.own[1].done)
            assert not idle.done()
            first.set_result(Answer({"y": np.float32([[5]])}, BatchTiming(0.0, 0.0, 1)))
            await idle
            (answer,), (error,) = reply.own[0].answers, reply.own[1].answers
            assert isinstance(answer, Answer)
            assert answer.outputs["y"].tolist() == [[5]]
            assert isinstance(error, InvalidRequest)
            assert not reply.answers

    asyncio.run(main())


def test_coalesced_requests_that_find_no_room_together_are_submitted_one_by_one_by_the_engine() -> None:
    async def main() -> None:
        async with connected_ends() as ends:
            ends.model.has_room = False
            reply = coalesce(ends)
            first, second = await ends.submitted(2)
            assert [each.request.inputs["text"].tolist() for each in (first, second)] == [[b"a"], [b"b", b"c"]]
            second.answer(y=np.float32([[2], [3]]))
            first.answer(y=np.float32([[1]]))
            await until(reply.done)
            answers: list[Any] = [own.answers[0] for own in reply.own]
            assert [answer.outputs["y"].tolist() for answer in answers] == [[[1]], [[2], [3]]]

    asyncio.run(main())


@pytest.mark.parametrize("crosses", [False, True])
def test_coalesced_requests_that_are_late_are_cancelled_though_they_were_taken_apart(*, crosses: bool) -> None:
    async def main() -> None:
        async with connected_ends() as ends:
            ends.model.has_room = False
            reply = coalesce(ends)
            submitted = await ends.submitted(2)
            if not crosses:
                await until(lambda: "2 pending" in repr(ends.engine))
            ends.now_s = 99.7
            ends.engine._give_up_late()  # else APART is on its way
            told = [own.answers[0] for own in reply.own] if not crosses else reply.answers
            assert set(map(type, told)) == {DeadlineExceeded}
            await ends.engine.idle()
            await until(lambda: [each.cancelled for each in submitted] == [1, 1])
            assert ends.frontend._waiting == {}

    asyncio.run(main())


@pytest.mark.parametrize("crosses", [False, True])
def test_coalesced_requests_whose_callers_leave_are_cancelled_though_they_were_taken_apart(*, crosses: bool) -> None:
    async def main() -> None:
        async with connected_ends() as ends:
            ends.model.has_room = False
            _, handle = coalesced_and_handle(ends)
            submitted = await ends.submitted(2)
            if not crosses:
                await until(lambda: "2 pending" in repr(ends.engine))
            handle.cancel()  # else APART is on its way
            await ends.engine.idle()
            await until(lambda: [each.cancelled for each in submitted] == [1, 1])
            assert ends.frontend._waiting == {}

    asyncio.run(main())


def test_coalesced_requests_that_come_in_one_turn_are_computed_by_one_call() -> None:
    async def main() -> None:
        async with connected_ends() as ends:
            ends.model.sizes = BatchSizes((1, 8))
            replies = [coalesce(ends) for _ in range(2)]
            (submitted,) = await ends.submitted(1)
            joined: Any = submitted.reply
            assert list(joined.rows) == [1, 2, 1, 2]
            assert submitted.request.inputs["text"].tolist() == [b"a", b"b", b"c"] * 2
            submitted.answer(y=np.arange(6, dtype=np.float32).reshape(6, 1))
            await until(lambda: all(reply.done() for reply in replies))
            answers: list[Any] = [reply.answers[0].outputs["y"].ravel().tolist() for reply in replies]
            assert answers == [[0, 1, 2], [3, 4, 5]]
            assert ends.frontend._waiting == {}

    asyncio.run(main())


def test_a_request_does_not_overtake_those_that_came_before_it_in_one_turn() -> None:
    async def main() -> None:
        async with connected_ends() as ends:
            coalesce(ends)
            last = ends.ask(word=b"last")
            first, second = await ends.submitted(2)
            assert first.request.inputs["text"].tolist() == [b"a", b"b", b"c"]
            assert second.request.inputs["text"].tolist() == [b"last"]
            second.answer(y=np.float32([[1, 1]]))
            await last

    asyncio.run(main())


def test_the_core_is_given_away_for_quick_calls_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind calls that take long nobody may wait for the next turn."""
    yields: list[None] = []
    monkeypatch.setattr(os, "sched_yield", lambda: yields.append(None))

    async def scenario(made: ConnectedEnds) -> None:
        for number, compute_s in enumerate((0.5, 1e-4, 0.5), 1):
            asked = made.ask()
            submitted = (await made.submitted(number))[-1]
            yields.clear()
            submitted.reply.set_result(Answer({"y": np.zeros((1, 2), np.float32)}, BatchTiming(0.0, compute_s, 1)))
            await asked
            await made.engine.query("anything")
            assert bool(yields) == (compute_s < engine_connection.QUICK_S)

    play(scenario)
