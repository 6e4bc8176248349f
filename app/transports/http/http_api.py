"""An API over HTTP: an ASGI application of one request in, one reply out, one event.

An API decides without waiting: `begin` turns a whole request into what has to be computed and how its reply is written.
It is called by plain ASGI here and by connections of our own (direct/direct_exchange.py). There is no framework and no
middleware, and on those connections no task for each request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import ClassVar, TypeVar

from app.access.rules import UNKNOWN, Need, Permission
from app.codecs.at_once import TakesLong
from app.core.errors import InvalidRequest, ModelNotReady, ServingError
from app.core.events import AccessDenied, Administered, Listener, RequestFinished, RequestsFinished, RequestsRefused
from app.core.inference import InferenceRequest
from app.transports.access_log import AccessLog
from app.transports.http.asgi import Receive, Scope, Send
from app.transports.http.audience import Audience
from app.transports.http.client_watch import ClientWatch
from app.transports.http.exchange import AsgiExchange, Coalesced, Computation, Exchange, failure_reply
from app.transports.http.head import TIMEOUT_HEADER, RequestHead
from app.transports.http.late_replies import ReplyLater
from app.transports.http.long_bodies.reading_process import ReadingProcess
from app.transports.http.long_bodies.reading_processes import ReadingProcesses
from app.transports.http.rejections import Outline, Rejection, json_outline
from app.transports.http.replies import (
    CLIENT_GONE,
    ClientGone,
    HttpOptions,
    Sendable,
    content_bytes,
    read_body,
    send_reply,
)
from app.transports.http.server_timing import SERVER_TIMING, server_timing
from app.transports.memory.reply_room import reserve_outputs
from app.transports.request_priority import PRIORITY_HEADER, read_priority
from app.transports.request_trace import Ended, rows_of
from app.transports.trace_context import parent_span

T = TypeVar("T")

#: Gives monotonic seconds.
Clock = Callable[[], float]

#: A body of this many bytes is read beside the event loop. Chosen: usual ones of this size take 2 to 10 ms.
LONG_BODY_BYTES = 1024 * 1024


class Streamed:
    """A reply that is sent while its request is still being read."""

    status: ClassVar[int] = 200

    async def stream(self, send: Send) -> None:
        """Sends the whole reply. Raises ClientGone."""
        raise NotImplementedError


class HttpApi:
    """An ASGI application. `listener` gets one event for each request, whatever its outcome.

    Args:
        clock: monotonic seconds, the same base as the batcher's.
        readers: read long bodies that are parsed; without them a thread does.

    Attributes:
        access: the access log; None if there is none.
    """

    #: The name of the protocol in events.
    name: ClassVar[str]

    def __init__(
        self,
        listener: Listener,
        options: HttpOptions,
        clock: Clock = time.monotonic,
        readers: ReadingProcesses | None = None,
    ) -> None:
        self._readers = readers
        self.options = options
        self.tracing = options.tracing
        self.clock = clock
        self._listener = listener
        self.access: AccessLog | None = None

    # --- a protocol defines these ---

    async def answer(self, exchange: AsgiExchange) -> Sendable | Streamed:
        """The reply to any request. Raises ServingError, ClientGone."""
        raise NotImplementedError

    def methods(self, path: str) -> Collection[str]:
        """The methods that a path (as sent, percent-encoded) accepts; empty if there is no such path."""
        raise NotImplementedError

    def computes(self, method: str, path: str) -> bool:
        """Does a request with this method and path ask for a computation, so that `begin` accepts it?"""
        raise NotImplementedError

    def needs(self, method: str, path: str) -> Need:  # noqa: ARG002 - for protocols that define it
        """The need of a request. Undefined routes need METADATA on all models."""
        return UNKNOWN

    def audience(self, path: str) -> Audience:  # noqa: ARG002 - for protocols that define it
        """The audience of a path, as sent, whatever the method."""
        return Audience.EVERYONE

    def begin(self, exchange: Exchange, body: bytes) -> Computation:
        """The computation of a request. Nothing awaits from here to the batcher, so no version can be swapped between.

        Raises:
            ServingError: the request cannot be computed.
            TakesLong: reading the body would hold up the event loop: `begin_later` reads it elsewhere.
        """
        raise NotImplementedError

    def parses(self, head: RequestHead, body: bytes) -> bool:  # noqa: ARG002 - for protocols that define it
        """Does reading this long body keep the GIL for long, so that a process should? Raises ServingError."""
        return False

    def made_bytes(self, head: RequestHead, body: bytes) -> float:  # noqa: ARG002 - for protocols that define it
        """Bytes that reading this body makes, where its size does not let expect them; else 0. Raises ServingError."""
        return 0.0

    def begin_in_thread(self, exchange: Exchange, body: bytes, process: ReadingProcess | None) -> Computation:
        """The computation of a request, in a thread: `process` reads the body, or the thread if it is None.

        Raises:
            ServingError: the request cannot be computed.
            TimeoutError, ProcessEnded: the process does not answer.
        """
        raise NotImplementedError

    def outline(self, head: RequestHead, body: bytes) -> Outline | None:
        """The outline of a body that `begin` accepted, by which another asks for no less; None if it has none."""
        return json_outline(head.header(b"content-type"), body)

    def coalescing_key(self, head: RequestHead) -> object:  # noqa: ARG002 - for protocols that define it
        """A key: requests whose heads have equal keys can be computed together; None: it begins alone. Never raises."""
        return None

    def begin_coalesced(self, head: RequestHead, bodies: Sequence[bytes], deadline_s: float) -> Coalesced | None:
        """Requests with the same coalescing key, one of which has this head, as one computation, if that can be now.

        None if they have to begin one by one, for example because one is unusual or invalid. Never raises.
        """

    # --- ASGI and connections call these ---

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = AsgiExchange(scope, receive, self.clock())
        need = self.needs(exchange.head.method, exchange.head.path)
        code, size = CLIENT_GONE, 0
        if self.tracing is not None:
            exchange.trace = self.tracing.begin(parent_span(exchange.head.headers))

        # 1. The reply, which may be an error, and its way to the client.
        try:
            reply = await self._reply(exchange, need)
            code = str(reply.status)
            if self.access is not None and not isinstance(reply, Streamed):
                size = content_bytes(reply)
            timing = [(SERVER_TIMING, exchange.timing)] if exchange.timing else ()
            await (reply.stream(send) if isinstance(reply, Streamed) else send_reply(reply, send, timing))
        except ClientGone:
            code = CLIENT_GONE

        # 2. The events, whatever the outcome.
        finally:
            self.give_back(exchange.reserved)
            self.finished(exchange, code, self.clock(), size)
            if need.permission is Permission.ADMINISTRATION:
                self._listener(Administered(*self._who(exchange), code))

    def finished(self, exchange: Exchange, code: str, now: float, size: int = 0) -> None:
        """Sends the event of a request with the status `code` at `now` (monotonic seconds).

        `size`: bytes of the reply's content, for the access log; 0 if they are not known.
        """
        self._listener(RequestFinished(self.name, code, *exchange.asked, now - exchange.started_s))
        self.note_end(exchange, code, now, size)

    def finished_together(self, asked: tuple[str, int, str], seconds: Sequence[float]) -> None:
        """Sends one event of requests that succeeded, whose ends were noted. `asked`: model, version and signature."""
        self._listener(RequestsFinished(self.name, "200", *asked, seconds))

    def note_end(self, exchange: Exchange, code: str, now: float, size: int) -> None:
        """Writes the line of the access log and ends the trace, as `finished` does beside its event."""
        if self.access is None and exchange.trace is None:
            return
        method, path = exchange.head.method, exchange.head.path
        ended = Ended(self.name, code, exchange.asked, exchange.started_s, now)

        # 1. The line of the access log.
        if self.access is not None and self.access.wants():
            self.access.write(
                ended,
                client=exchange.address,
                method=method,
                path=path,
                size=size,
                request_id=exchange.request_id,
                caller=exchange.principal,
            )

        # 2. The span, which names no path that is not known here.
        if exchange.trace is not None:
            known = path if self.methods(path) else ""
            exchange.trace.end_http(method, known, ended)

    async def begin_later(self, exchange: Exchange, body: bytes, go_on: Callable[[Computation], Awaitable[T]]) -> T:
        """The result of `go_on` for the computation that a long body asks for, which is read beside the event loop.

        If the model's version was unloaded meanwhile, the body is read again, for the next one. Raises ServingError.
        """
        with self.options.memory.reserved(self.made_bytes(exchange.head, body), len(body)):
            try:
                return await go_on(await self._begin_long(exchange, body))
            except ModelNotReady:
                return await go_on(await self._begin_long(exchange, body))

    async def _begin_long(self, exchange: Exchange, body: bytes) -> Computation:
        begin = partial(self.begin_in_thread, exchange, body)
        here = partial(begin, None)
        if self._readers is None or not self._parses(exchange.head, body):
            return await asyncio.to_thread(here)
        left_s = self.deadline_s(exchange) - self.clock()
        return await self._readers.read(begin, here, left_s, len(body))

    def _parses(self, head: RequestHead, body: bytes) -> bool:
        with suppress(ServingError):  # `begin` raises it, unless it raises another error first
            return self.parses(head, body)
        return False

    def rejected(self, rejection: Rejection, seconds: float, exchange: Callable[[], Exchange]) -> None:
        """Sends the event of a request that was rejected without parsing its body, which took this long.

        `exchange`: makes what the access log shows of it, where there is one.
        """
        if self.access is None:
            self._listener(RequestFinished(self.name, str(rejection.reply.status), *rejection.asked, seconds))
        else:
            told = exchange()
            told.asked = rejection.asked
            self.finished(told, str(rejection.reply.status), told.started_s + seconds)
        self.note_late()

    def note_late(self) -> None:
        """Sends the event that a request was refused without parsing its body."""
        self._listener(RequestsRefused("late"))

    async def _reply(self, exchange: AsgiExchange, need: Need) -> Sendable | Streamed:
        """The reply, also for an error. Raises ClientGone."""
        try:
            access = self.options.access
            if access is not None and need.permission is not None:  # before anything of the body is read
                exchange.head.permit = access.permit(exchange.head.headers, need)
                exchange.head.permit.use()
            return await self.answer(exchange)
        except ClientGone:
            raise
        except Exception as error:
            self.note_denied(error, exchange)
            return failure_reply(error, exchange)

    def note_denied(self, error: Exception, exchange: Exchange) -> None:
        """Sends the event if access was denied."""
        if isinstance(error, ServingError) and error.denied:
            exchange.denied = error.caller
            self._listener(AccessDenied(error.denied, *self._who(exchange)))

    def _who(self, exchange: Exchange) -> tuple[str, str, str, str]:
        """The fields of events about access: caller, protocol, address, request."""
        return exchange.principal, self.name, exchange.address, f"{exchange.head.method} {exchange.head.path}"

    # --- for `answer` ---

    async def read(self, exchange: AsgiExchange) -> bytes:
        """The whole body, inflated. Raises BodyTooLarge, InvalidRequest, UnsupportedEncoding, ClientGone."""
        return await self._read(exchange, self.options.max_body_bytes)

    async def read_short(self, exchange: AsgiExchange) -> bytes:
        """The whole body, as by `read`, if the event loop parses it: `LONG_BODY_BYTES` or more are too large."""
        limit = min(self.options.max_body_bytes, LONG_BODY_BYTES - 1)
        return await self._read(exchange, limit)

    async def _read(self, exchange: AsgiExchange, limit: int) -> bytes:
        memory = self.options.memory
        reserve = partial(exchange.reserve_inflated, memory) if memory.room.is_limited() else None
        return await read_body(exchange.head.headers, exchange.receive, limit, reserve)

    async def compute(self, exchange: AsgiExchange) -> Sendable:
        """The reply to a request that `begin` accepts. Raises ClientGone as soon as the client disconnects."""
        body = await self.read(exchange)
        if len(body) >= LONG_BODY_BYTES:
            return await self.begin_later(exchange, body, partial(self._computed, exchange))
        try:
            computation = self.begin(exchange, body)
        except TakesLong:
            return await self.begin_later(exchange, body, partial(self._computed, exchange))
        return await self._computed(exchange, computation)

    async def _computed(self, exchange: AsgiExchange, computation: Computation) -> Sendable:
        self.name_caller(computation.request, exchange)
        made = reserve_outputs(self.options.memory, computation.model, computation.request)
        try:
            with ClientWatch(exchange.receive):
                response = await computation.model.infer(computation.request)
        finally:
            self.give_back(made)
        exchange.timing = server_timing(response.timing)
        if exchange.trace is not None:
            exchange.trace.computed(response.timing, rows_of(computation.request.inputs), self.clock())
        reply = computation.reply(response)
        if not isinstance(reply, ReplyLater):
            return reply
        exchange.reserved += await reply.reserve(self.options.memory)
        return await reply.written

    def give_back(self, reserved: float) -> None:
        """Gives back memory that was reserved for a request."""
        self.options.memory.room.give(reserved)

    def name_caller(self, request: InferenceRequest, exchange: Exchange) -> None:
        """Names the caller of a request that is to be computed, if callers are told apart."""
        if self.options.callers is not None:
            request.caller = self.caller(exchange)

    def caller(self, exchange: Exchange) -> str:
        """The caller of a request, by its principal if it has one; empty if callers are not told apart."""
        rule = self.options.callers
        if rule is None:
            return ""
        return exchange.principal or rule.caller(exchange.head.header, exchange.address)

    def deadline_s(self, exchange: Exchange) -> float:
        """The deadline of a request in monotonic seconds. Raises InvalidRequest."""
        return exchange.started_s + self.timeout_s(exchange.head)

    def timeout_s(self, head: RequestHead) -> float:
        """The configured time-out, or the client's if that is shorter. Raises InvalidRequest."""
        longest_ms = self.options.request_timeout_ms
        wanted = head.header(TIMEOUT_HEADER)
        return (longest_ms if wanted is None else min(_milliseconds(wanted), longest_ms)) / 1e3


def priority_of(head: RequestHead) -> int:
    """The priority in the header; 0 without one. Raises InvalidRequest."""
    value = head.header(PRIORITY_HEADER)
    return 0 if value is None else read_priority(value.decode("latin-1"))


def _milliseconds(value: bytes) -> float:
    try:
        milliseconds = float(value)
    except ValueError:
        milliseconds = 0.0
    if not milliseconds > 0:
        text = value.decode("latin-1")[:64]
        raise InvalidRequest(f"Header X-Request-Timeout-Ms must be a number of milliseconds above 0, not {text!r}")
    return milliseconds
