"""The base of an HTTP protocol: one request in, one reply out, one event.

A protocol decides without waiting: `begin` turns a whole request into what has to be computed and how its reply is
written. It is called by plain ASGI here and by connections of our own (http1/connection.py). There is no framework
and no middleware, and on those connections no task for each request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypeVar

from app.access.access import Permit
from app.access.rules import UNKNOWN, Need, Permission
from app.codecs.at_once import TakesLong
from app.core.errors import InvalidRequest, ModelNotReady, ServingError
from app.core.events import AccessDenied, Administered, Listener, RequestFinished, RequestsFinished, RequestsRefused
from app.core.inference import Array, InferenceRequest, InferenceResponse
from app.core.interfaces import Computing, ServedModel
from app.transports.access_log import AccessLog
from app.transports.http.asgi import Receive, Scope, Send, path_as_sent
from app.transports.http.audience import Audience
from app.transports.http.body_reservations import reserve_inflated, reserved
from app.transports.http.disconnects import Disconnects
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
    error_reply,
    internal_error,
    read_body,
    send_reply,
)
from app.transports.http.server_timing import SERVER_TIMING, server_timing
from app.transports.memory.reply_room import reserve_outputs
from app.transports.request_id import REQUEST_ID, checked, shown
from app.transports.request_priority import PRIORITY_HEADER, read_priority
from app.transports.request_trace import Ended, RequestTrace, rows_of
from app.transports.trace_context import parent_span

logger = logging.getLogger(__name__)

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


class Exchange:
    """One request until its reply, and what its event will say.

    Attributes:
        timing: the value of Server-Timing; empty unless the request was computed.
        request_id: as the client sent it; empty if it did not. Heads do not have it, which many requests share.
        denied: the name of the caller to whom access was denied; empty unless that is known.
        trace: None unless it is traced.
    """

    __slots__ = ("denied", "head", "model", "request_id", "signature", "started_s", "timing", "trace", "version")

    def __init__(self, head: RequestHead, started_s: float, request_id: bytes = b"") -> None:
        self.head = head
        self.request_id = request_id
        self.started_s = started_s
        self.timing = b""
        self.denied = ""
        self.trace: RequestTrace | None = None
        self.model = ""
        self.version = 0
        self.signature = ""

    @property
    def address(self) -> str:
        """Of who sent it, without the port; empty if it is not known."""
        return ""

    @property
    def permit(self) -> Permit | None:
        """What its credential lets it do; None where none is needed."""
        return self.head.permit

    @property
    def principal(self) -> str:
        """The name of the caller, who has proven it; empty where nobody has to."""
        permit = self.head.permit
        return self.denied if permit is None else permit.principal.name

    def record_model(self, model: ServedModel, signature: str = "") -> None:
        """Records the model that is asked, and the signature that is to be computed, if any, for the event."""
        self.model, self.version, self.signature = model.name, model.version, signature


class AsgiExchange(Exchange):
    """A request that arrives by ASGI. `reserved`: bytes for its inflated body and its long reply."""

    __slots__ = ("client", "port", "receive", "reserved")

    def __init__(self, scope: Scope, receive: Receive, started_s: float) -> None:
        query: bytes = scope.get("query_string", b"")
        head = RequestHead(scope["method"], path_as_sent(scope), query, scope["headers"])
        super().__init__(head, started_s, checked(head.header(REQUEST_ID) or b""))
        self.receive = receive
        self.reserved = 0.0
        #: The address and the port that the request comes from; '' and 0 if they are not known.
        self.client: tuple[str, int] = tuple(scope.get("client") or ("", 0))
        #: The server's own, 0 if it is not known.

    @property
    def address(self) -> str:
        return self.client[0]


def own_port(scope: Scope) -> int:
    """The port that a request came to; 0 if it is not known."""
    server = scope.get("server")
    return (server[1] or 0) if server else 0


@dataclass(slots=True)
class Computation:
    """What has to be computed for a reply, and how the reply is written.

    `reply` raises ServingError if the outputs cannot be written as asked.
    """

    model: Computing
    request: InferenceRequest
    reply: Callable[[InferenceResponse], Sendable | ReplyLater]


@dataclass(slots=True)
class Coalesced:
    """Several requests as one.

    Attributes:
        request: inputs of shape [sum of rows, ...].
        rows: the number of rows of each request.
        max_rows: how many rows a call may have.
        reply: the reply to one request, given its number and the outputs of its own rows, which may be long if the
            third argument is true.
        bodies: writes the bodies of the replies to some requests at once, if they are not long, given the numbers of
            these and all of their outputs; None if they have to be written one by one. Each is that of `reply`, which
            has no other headers.
        content_type: of the bodies.
    """

    model: ServedModel
    request: InferenceRequest
    rows: Sequence[int]
    max_rows: int
    reply: Callable[[int, dict[str, Array], bool], Sendable | ReplyLater]
    bodies: Callable[[slice, Mapping[str, Array]], Sequence[bytes] | None]
    content_type: bytes = b"application/json"


class HttpProtocol:
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
        self._disconnects = Disconnects()
        self.access: AccessLog | None = None

    # --- a protocol defines these ---

    async def answer(self, exchange: AsgiExchange) -> Sendable | Streamed:
        """The reply to any request. Raises ServingError, ClientGone."""
        raise NotImplementedError

    def methods(self, path: str) -> Collection[str]:
        """The methods that a path (as sent, percent-encoded) accepts; empty if there is no such path."""
        raise NotImplementedError

    def computes(self, method: str, path: str) -> bool:
        """Does such a request ask for a computation, so that `begin` accepts it?"""
        raise NotImplementedError

    def needs(self, method: str, path: str) -> Need:  # noqa: ARG002 - for protocols that define it
        """What a request needs of its caller. What a protocol does not define needs what nobody has by chance."""
        return UNKNOWN

    def audience(self, path: str) -> Audience:  # noqa: ARG002 - for protocols that define it
        """Who a path, as sent, is for, whatever the method."""
        return Audience.EVERYONE

    def begin(self, exchange: Exchange, body: bytes) -> Computation:
        """What has to be computed. Nothing awaits from here to the batcher, so no version can be swapped between.

        Raises:
            ServingError: the request cannot be computed.
            TakesLong: reading the body would hold up the event loop: `begin_later` reads it elsewhere.
        """
        raise NotImplementedError

    def parses(self, head: RequestHead, body: bytes) -> bool:  # noqa: ARG002 - for protocols that define it
        """Does reading this long body keep the GIL for long, so that a process should? Raises ServingError."""
        return False

    def made_bytes(self, head: RequestHead, body: bytes) -> float:  # noqa: ARG002 - for protocols that define it
        """What reading this body makes, where its size does not let expect that; else 0. Raises ServingError."""
        return 0.0

    def begin_apart(self, exchange: Exchange, body: bytes, process: ReadingProcess | None) -> Computation:
        """As `begin`, in a thread; `process` reads the body, whatever that takes, or this thread if it is None.

        Raises:
            ServingError: the request cannot be computed.
            TimeoutError, ProcessEnded: the process does not answer.
        """
        raise NotImplementedError

    def outline(self, head: RequestHead, body: bytes) -> Outline | None:
        """By what a body that `begin` accepted is known to ask for no more than another; None if by nothing."""
        return json_outline(head, body)

    def coalescing_key(self, head: RequestHead) -> object:  # noqa: ARG002 - for protocols that define it
        """Requests whose heads have equal keys now can be computed together; None if one begins alone. Never raises."""
        return None

    def begin_coalesced(self, head: RequestHead, bodies: Sequence[bytes], started_s: float) -> Coalesced | None:
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
        try:
            reply = await self._reply(exchange, need)
            code = str(reply.status)
            if self.access is not None and not isinstance(reply, Streamed):
                size = content_bytes(reply)
            timing = [(SERVER_TIMING, exchange.timing)] if exchange.timing else ()
            await (reply.stream(send) if isinstance(reply, Streamed) else send_reply(reply, send, timing))
        except ClientGone:
            code = CLIENT_GONE
        finally:
            self.give_back(exchange.reserved)
            self.finished(exchange, code, self.clock(), size)
            if need.permission is Permission.ADMINISTRATION:
                self._listener(Administered(*self._who(exchange), code))

    def finished(self, exchange: Exchange, code: str, now: float, size: int = 0) -> None:
        """Sends the event of a request with the status `code` at `now` (monotonic seconds).

        `size`: bytes of the reply's content, for the access log; 0 if they are not known.
        """
        asked = exchange.model, exchange.version, exchange.signature
        self._listener(RequestFinished(self.name, code, *asked, now - exchange.started_s))
        self.note_end(exchange, code, now, size)

    def finished_together(self, asked: tuple[str, int, str], seconds: Sequence[float]) -> None:
        """Sends one event of requests that succeeded, whose ends were noted. `asked`: model, version and signature."""
        self._listener(RequestsFinished(self.name, "200", *asked, seconds))

    def note_end(self, exchange: Exchange, code: str, now: float, size: int) -> None:
        """What else than the event `finished` does."""
        if self.access is not None and self.access.wants():
            self.access.write(
                protocol=self.name,
                client=exchange.address,
                method=exchange.head.method,
                path=exchange.head.path,
                status=code,
                size=size,
                seconds=now - exchange.started_s,
                model=exchange.model,
                version=exchange.version,
                request_id=exchange.request_id,
                caller=exchange.principal,
            )
        if exchange.trace is not None:
            asked = exchange.model, exchange.version, exchange.signature
            method, path = exchange.head.method, exchange.head.path
            known = path if self.methods(path) else ""
            exchange.trace.end_http(method, known, Ended(self.name, code, asked, exchange.started_s, now))

    async def begin_later(self, exchange: Exchange, body: bytes, go_on: Callable[[Computation], Awaitable[T]]) -> T:
        """What `go_on` makes of the computation that a long body asks for; the body is read beside the event loop.

        If the model's version was unloaded meanwhile, the body is read again, for the next one. Raises ServingError.
        """
        with reserved(self.options.memory, self.made_bytes(exchange.head, body), len(body)):
            try:
                return await go_on(await self._begin_long(exchange, body))
            except ModelNotReady:
                return await go_on(await self._begin_long(exchange, body))

    async def _begin_long(self, exchange: Exchange, body: bytes) -> Computation:
        begin = partial(self.begin_apart, exchange, body)
        here = partial(begin, None)
        if self._readers is None or not self._parses(exchange.head, body):
            return await asyncio.to_thread(here)
        left_s = self.deadline_s(exchange) - self.clock()
        return await self._readers.read(begin, here, left_s, len(body))

    def _parses(self, head: RequestHead, body: bytes) -> bool:
        with suppress(ServingError):  # `begin` raises it, after what it finds before
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
            told.model, told.version, told.signature = rejection.asked
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
        """As events about access have it: who, by which protocol, from where, and what."""
        return exchange.principal, self.name, exchange.address, f"{exchange.head.method} {exchange.head.path}"

    # --- for `answer` ---

    async def read(self, exchange: AsgiExchange) -> bytes:
        """The whole body, inflated. Raises BodyTooLarge, InvalidRequest, UnsupportedEncoding, ClientGone."""
        return await self._read(exchange, self.options.max_body_bytes)

    async def read_short(self, exchange: AsgiExchange) -> bytes:
        """As `read`, for a body that the event loop parses: one of `LONG_BODY_BYTES` or more is too large."""
        limit = min(self.options.max_body_bytes, LONG_BODY_BYTES - 1)
        return await self._read(exchange, limit)

    async def _read(self, exchange: AsgiExchange, limit: int) -> bytes:
        memory = self.options.memory
        reserve = None
        if memory is not None and memory.room.is_limited():
            reserve = partial(reserve_inflated, memory, exchange)
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
            with self._disconnects.watch(exchange.receive):
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
        """What was reserved for a request is no longer needed."""
        if reserved and self.options.memory is not None:
            self.options.memory.room.give(reserved)

    def name_caller(self, request: InferenceRequest, exchange: Exchange) -> None:
        """Says who sent a request that is to be computed, if callers are told apart."""
        if self.options.callers is not None:
            request.caller = self.caller(exchange)

    def caller(self, exchange: Exchange) -> str:
        """Who sent a request; empty if callers are not told apart. Who has proven a name is told by it."""
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


def failure_reply(error: Exception, exchange: Exchange) -> Sendable:
    """The reply for an error. A bug of ours is logged, and its reply has no details."""
    if isinstance(error, ServingError):
        if exchange.trace is not None:
            exchange.trace.error = str(error)
        return error_reply(error)
    version = exchange.version if exchange.model else None
    fields = {"request_id": shown(exchange.request_id), "model": exchange.model, "version": version}
    logger.error("A bug answered %s %s", exchange.head.method, exchange.head.path, exc_info=error, extra=fields)
    return internal_error()


def _milliseconds(value: bytes) -> float:
    try:
        milliseconds = float(value)
    except ValueError:
        milliseconds = 0.0
    if not milliseconds > 0:
        text = value.decode("latin-1")[:64]
        raise InvalidRequest(f"Header X-Request-Timeout-Ms must be a number of milliseconds above 0, not {text!r}")
    return milliseconds
