"""A long body is read in a thread, on both ways of a request: the event loop serves others meanwhile."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Callable
from typing import Any, ClassVar, cast

import numpy as np
import pytest

from app.codecs.at_once import TakesLong
from app.core.errors import InvalidRequest, ModelNotReady
from app.core.events import Event, RequestFinished
from app.core.inference import BatchTiming, InferenceRequest, InferenceResponse
from app.core.reply import COMPLETED, Answer, Reply
from app.transports.http.asgi import Receive
from app.transports.http.direct.direct_exchange import DirectExchange
from app.transports.http.exchange import AsgiExchange, Computation, Exchange
from app.transports.http.head import RequestHead
from app.transports.http.http_api import LONG_BODY_BYTES, HttpApi
from app.transports.http.long_bodies.reading_process import ReadingProcess
from app.transports.http.replies import HttpOptions, HttpReply, Sendable, read_body
from tests.support.protocol_fakes import scope, scripted

LONG, SHORT = b" " * LONG_BODY_BYTES, b" "
HANG_S = 20


class OneAnswer:
    """A model that answers, after it was `gone` for so many requests."""

    def __init__(self, gone: int) -> None:
        self.gone = gone

    def submit(self, request: InferenceRequest, reply: Reply) -> Any:
        if self.gone:
            self.gone -= 1
            raise ModelNotReady("This version is being unloaded")
        reply.set_result(Answer({"y": np.zeros(1)}, BatchTiming(0.0, 0.0, 1)))
        return COMPLETED

    def response(self, request: InferenceRequest, answer: Answer) -> InferenceResponse:
        return InferenceResponse(answer.outputs, "m", 1, "")

    async def infer(self, request: InferenceRequest) -> InferenceResponse:
        reply = asyncio.get_running_loop().create_future()
        self.submit(request, reply)
        return self.response(request, await reply)


class Reading(HttpApi):
    """Reads bodies with `read`, which may take long."""

    name: ClassVar[str] = "reading"

    def __init__(self, while_reading: Callable[[], object], gone: int = 0) -> None:
        self.events: list[Event] = []
        super().__init__(self.events.append, HttpOptions(10 * LONG_BODY_BYTES, 1e6))
        self.while_reading, self.model, self.begun = while_reading, OneAnswer(gone), 0

    async def answer(self, exchange: AsgiExchange) -> Sendable:
        return await self.compute(exchange)

    def begin(self, exchange: Exchange, body: bytes) -> Computation:
        self.begun += 1
        self.while_reading()
        return Computation(cast(Any, self.model), InferenceRequest({}), lambda _: HttpReply(b"answer"))

    def begin_in_thread(self, exchange: Exchange, body: bytes, process: ReadingProcess | None) -> Computation:
        return self.begin(exchange, body)

    def codes(self) -> list[str]:
        return [event.code for event in self.events if isinstance(event, RequestFinished)]


class Writer:
    """A connection."""

    address = ""

    http_version = "1.1"

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self.replies: list[Sendable] = []

    def reply(self, exchange: DirectExchange, reply: Sendable, now: float) -> None:
        exchange.response_complete = True
        self.replies.append(reply)

    def abort(self) -> None:
        raise AssertionError


def arriving(body: bytes) -> Receive:
    return scripted({"type": "http.request", "body": body})


async def by_asgi(protocol: Reading, body: bytes) -> None:
    async def send(_: Any) -> None: ...

    await protocol(scope("POST", "/"), arriving(body), send)


async def by_the_fast_path(protocol: Reading, body: bytes) -> None:
    writer = Writer()
    DirectExchange(writer, protocol, RequestHead("POST", "/", b"", ()), keep_alive=True).begin(body)
    await asyncio.gather(*writer.tasks)


BOTH_WAYS = pytest.mark.parametrize("ask", [by_asgi, by_the_fast_path])


@BOTH_WAYS
def test_the_event_loop_runs_while_a_long_body_is_read(ask: Any) -> None:
    async def main() -> None:
        loop_runs = threading.Event()
        seen: list[bool] = []
        protocol = Reading(lambda: seen.append(loop_runs.wait(HANG_S)))
        asking = asyncio.ensure_future(ask(protocol, LONG))
        await asyncio.sleep(0)  # lets it begin
        loop_runs.set()
        await asking
        assert (seen, protocol.codes()) == ([True], ["200"])

    asyncio.run(main())


@BOTH_WAYS
def test_a_short_body_is_read_at_once(ask: Any) -> None:
    async def main() -> None:
        readers: list[threading.Thread] = []
        await ask(Reading(lambda: readers.append(threading.current_thread())), SHORT)
        assert readers == [threading.current_thread()]

    asyncio.run(main())


@BOTH_WAYS
@pytest.mark.parametrize(("gone", "code", "begun"), [(1, "200", 2), (2, "503", 2)])
def test_a_version_that_was_unloaded_while_the_body_was_read_is_replaced_once(
    ask: Any, gone: int, code: str, begun: int
) -> None:
    protocol = Reading(lambda: None, gone)
    asyncio.run(ask(protocol, LONG))
    assert (protocol.codes(), protocol.begun) == ([code], begun)


@BOTH_WAYS
def test_an_error_in_a_long_body_is_a_reply(ask: Any) -> None:
    def wrong() -> None:
        raise InvalidRequest("no")

    protocol = Reading(wrong)
    asyncio.run(ask(protocol, LONG))
    assert protocol.codes() == ["400"]


def test_a_client_that_leaves_while_its_body_is_read_is_not_computed_for() -> None:
    async def main() -> None:
        left = threading.Event()
        protocol, writer = Reading(lambda: left.wait(HANG_S)), Writer()
        protocol.model.gone = 1
        exchange = DirectExchange(writer, protocol, RequestHead("POST", "/", b"", ()), keep_alive=True)
        exchange.begin(LONG)
        await asyncio.sleep(0)
        exchange.abandon()
        left.set()
        await asyncio.gather(*writer.tasks)
        assert (protocol.codes(), protocol.model.gone, writer.replies) == (["499"], 1, [])

    asyncio.run(main())


NOISE = np.random.default_rng(1).bytes(LONG_BODY_BYTES)


@pytest.mark.parametrize(
    ("content", "at_once"), [(NOISE[:100], True), (bytes(60_000), True), (bytes(200_000), False), (NOISE, False)]
)
def test_a_body_that_inflates_to_much_does_so_in_a_thread(content: bytes, at_once: bool) -> None:
    async def main() -> None:
        reading = asyncio.ensure_future(
            read_body([(b"content-encoding", b"gzip")], arriving(gzip.compress(content)), 2 * LONG_BODY_BYTES)
        )
        await asyncio.sleep(0)
        assert reading.done() is at_once
        assert await reading == content

    asyncio.run(main())


@BOTH_WAYS
def test_a_body_that_takes_long_is_read_in_a_thread_though_it_is_short(ask: Any) -> None:
    class TakingLong(Reading):
        def begin(self, exchange: Exchange, body: bytes) -> Computation:
            raise TakesLong

        def begin_in_thread(self, exchange: Exchange, body: bytes, process: ReadingProcess | None) -> Computation:
            return super().begin(exchange, body)

    async def main() -> None:
        readers: list[threading.Thread] = []
        protocol = TakingLong(lambda: readers.append(threading.current_thread()))
        await ask(protocol, SHORT)
        assert protocol.codes() == ["200"]
        assert readers != [threading.current_thread()]

    asyncio.run(main())
