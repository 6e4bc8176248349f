"""The frame of an HTTP protocol: one request in, one reply out, one event told.

A protocol decides without waiting: `begin` makes of a whole request what has to be computed, and how to write
the reply then. Two carriers drive it: plain ASGI here, and connections of our own (http1/connection.py). No
framework, no middleware and no task of its own for each request.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from types import CoroutineType
from typing import Any, ClassVar, TypeGuard, cast

from app.core.errors import InvalidRequest, ServingError
from app.core.events import Listener, RequestFinished
from app.core.inference import Array, InferenceRequest, InferenceResponse
from app.core.interfaces import ServedModel
from app.transports.http.asgi import Receive, Scope, Send
from app.transports.http.disconnects import Disconnects
from app.transports.http.head import RequestHead
from app.transports.http.rejections import Rejection
from app.transports.http.replies import (
    CLIENT_GONE,
    ClientGone,
    HttpLimits,
    Sendable,
    error_reply,
    internal_error,
    read_body,
    send_reply,
)
from app.transports.http.server_timing import SERVER_TIMING, server_timing
from app.transports.request_priority import PRIORITY_HEADER, read_priority

logger = logging.getLogger(__name__)

#: Gives monotonic seconds.
Clock = Callable[[], float]

TIMEOUT_HEADER = b"x-request-timeout-ms"


#: A reply that is still being written.
Written = Coroutine[Any, Any, Sendable]


def is_still_written(reply: Sendable | Written) -> TypeGuard[Written]:
    return isinstance(reply, CoroutineType)  # of the abstract class this would be far slower


class Streamed:
    """A reply that is sent while its request is still being read."""

    status: ClassVar[int] = 200

    async def stream(self, send: Send) -> None:
        """All of it. Raises ClientGone."""
        raise NotImplementedError


class Exchange:
    """One request on its way, and what became known of it for those who listen.

    `timing` is the value of Server-Timing once it was computed.
    """

    __slots__ = ("head", "model", "signature", "started_s", "timing", "version")

    def __init__(self, head: RequestHead, started_s: float) -> None:
        self.head = head
        self.started_s = started_s
        self.timing = b""
        self.model = ""
        self.version = 0
        self.signature = ""

    def concerns(self, model: ServedModel, signature: str = "") -> None:
        """From here on it is known what is asked; a signature says that it is to be computed."""
        self.model, self.version, self.signature = model.name, model.version, signature


class AsgiExchange(Exchange):
    """One that ASGI carries."""

    __slots__ = ("receive",)

    def __init__(self, scope: Scope, receive: Receive, started_s: float) -> None:
        raw: bytes | None = scope.get("raw_path")
        path: str = raw.decode("latin-1") if raw else scope["path"]
        query: bytes = scope.get("query_string", b"")
        super().__init__(RequestHead(scope["method"], path, query, scope["headers"]), started_s)
        self.receive = receive


@dataclass(slots=True)
class Computation:
    """What has to be computed before there is a reply, and how the reply is written then.

    `reply` raises ServingError where the outputs cannot be written as asked; what takes long to write is awaited.
    """

    model: ServedModel
    request: InferenceRequest
    reply: Callable[[InferenceResponse], Sendable | Written]


@dataclass(slots=True)
class Coalesced:
    """Several requests as one: their rows behind one another, how many each has, and how to write a reply to some."""

    model: ServedModel
    request: InferenceRequest
    rows: Sequence[int]
    reply: Callable[[dict[str, Array]], Sendable]


class HttpProtocol:
    """The ASGI application. Tells `listener` of every request once, whatever became of it.

    Args:
        clock: monotonic seconds, the same base as the batcher's.
    """

    #: What events call the protocol.
    name: ClassVar[str]

    def __init__(self, listener: Listener, limits: HttpLimits, clock: Clock = time.monotonic) -> None:
        self.limits = limits
        self.clock = clock
        self._listener = listener
        self._disconnects = Disconnects()

    # --- what a protocol says ---

    async def answer(self, exchange: AsgiExchange) -> Sendable | Streamed:
        """The reply to any request. Raises ServingError, ClientGone."""
        raise NotImplementedError

    def computes(self, method: str, path: str) -> bool:
        """Does such a request ask for a computation, so that `begin` takes it?"""
        raise NotImplementedError

    def begin(self, exchange: Exchange, body: bytes) -> Computation:
        """What has to be computed. Nothing awaits from here to the batcher, so no version can be swapped in between.

        Raises ServingError.
        """
        raise NotImplementedError

    def begin_coalesced(
        self,
        head: RequestHead,  # noqa: ARG002 - this is for protocols that can
        bodies: Sequence[bytes],  # noqa: ARG002 - as above
        started_s: float,  # noqa: ARG002 - as above
    ) -> Coalesced | None:
        """What `begin` says of requests with one head, as one computation, where that can be had right now.

        None where they are to begin one by one, also because one of them is unusual or wrong. Never raises.
        """
        return None

    # --- what carries it ---

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = AsgiExchange(scope, receive, self.clock())
        code = CLIENT_GONE
        try:
            reply = await self._reply(exchange)
            code = str(reply.status)
            timing = [(SERVER_TIMING, exchange.timing)] if exchange.timing else ()
            await (reply.stream(send) if isinstance(reply, Streamed) else send_reply(reply, send, timing))
        except ClientGone:
            code = CLIENT_GONE
        finally:
            self.finished(exchange, code, self.clock())

    def finished(self, exchange: Exchange, code: str, now: float) -> None:
        """Tells who listens."""
        seconds = now - exchange.started_s
        self._listener(RequestFinished(self.name, code, exchange.model, exchange.version, exchange.signature, seconds))

    def rejected(self, rejection: Rejection) -> None:
        """Tells who listens of a request that was rejected unread."""
        self._listener(RequestFinished(self.name, str(rejection.reply.status), *rejection.asked, 0.0))

    async def _reply(self, exchange: AsgiExchange) -> Sendable | Streamed:
        """The answer, errors included. Raises ClientGone."""
        try:
            return await self.answer(exchange)
        except ClientGone:
            raise
        except Exception as error:
            return failure_reply(error, exchange)

    # --- what answers are made with ---

    async def read(self, exchange: AsgiExchange) -> bytes:
        """The whole body, inflated. Raises as `read_body` does."""
        return await read_body(exchange.head.headers, exchange.receive, self.limits.max_body_bytes)

    async def compute(self, exchange: AsgiExchange) -> Sendable:
        """The reply to a request that `begin` takes. ClientGone as soon as nobody waits for it any more."""
        computation = self.begin(exchange, await self.read(exchange))
        with self._disconnects.watch(exchange.receive):
            response = await computation.model.infer(computation.request)
        exchange.timing = server_timing(response.timing)
        reply = computation.reply(response)
        return await reply if is_still_written(reply) else cast(Sendable, reply)

    def deadline_s(self, exchange: Exchange) -> float:
        """When the time of a request is over. Raises InvalidRequest."""
        return exchange.started_s + self.timeout_s(exchange.head)

    def timeout_s(self, head: RequestHead) -> float:
        """The configured time, or the caller's where that is shorter. Raises InvalidRequest."""
        longest_ms = self.limits.request_timeout_ms
        wanted = head.header(TIMEOUT_HEADER)
        return (longest_ms if wanted is None else min(_milliseconds(wanted), longest_ms)) / 1e3


def priority_of(head: RequestHead) -> int:
    """What the header says; 0 without one. Raises InvalidRequest."""
    value = head.header(PRIORITY_HEADER)
    return 0 if value is None else read_priority(value.decode("latin-1"))


def failure_reply(error: Exception, exchange: Exchange) -> Sendable:
    """What the client is told; of a bug of ours, nothing."""
    if isinstance(error, ServingError):
        return error_reply(error)
    logger.error("A bug answered %s %s", exchange.head.method, exchange.head.path, exc_info=error)
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
