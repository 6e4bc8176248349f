"""The frame of an HTTP protocol as plain ASGI: one request in, one reply out, one event told.

No framework, no middleware and no task of its own for each request.
"""

from __future__ import annotations

import asyncio
import logging
from typing import ClassVar, Protocol

from app.errors import InvalidRequest, ServingError
from app.events import Listener, RequestFinished
from app.inference import InferenceRequest, InferenceResponse
from app.model import Model
from app.protocols.asgi import Receive, Scope, Send
from app.protocols.disconnects import Disconnects
from app.protocols.http import CLIENT_GONE, ClientGone, HttpLimits, error_reply, internal_error, read_body

log = logging.getLogger(__name__)

_TIMEOUT_HEADER = b"x-request-timeout-ms"


class Sendable(Protocol):
    """A whole reply."""

    @property
    def status(self) -> int: ...

    async def send(self, send: Send) -> None: ...


class Exchange:
    """One request on its way, and what became known of it for those who listen."""

    __slots__ = ("model", "receive", "scope", "signature", "started_s", "version")

    def __init__(self, scope: Scope, receive: Receive, started_s: float) -> None:
        self.scope = scope
        self.receive = receive
        self.started_s = started_s
        self.model = ""
        self.version = 0
        self.signature = ""

    @property
    def path(self) -> str:
        """As sent, still percent-encoded and without the query."""
        raw: bytes | None = self.scope.get("raw_path")
        path: str = raw.decode("latin-1") if raw else self.scope["path"]
        return path

    def header(self, name: bytes) -> bytes | None:
        """The first of that name; `name` is in lower case."""
        return next((value for key, value in self.scope["headers"] if key == name), None)

    def concerns(self, model: Model, signature: str = "") -> None:
        """From here on it is known what is asked; a signature says that it is to be computed."""
        self.model, self.version, self.signature = model.name, model.version, signature


class HttpProtocol:
    """The ASGI application. Tells `listener` of every request once, whatever became of it."""

    #: What events call the protocol.
    name: ClassVar[str]

    def __init__(self, listener: Listener, limits: HttpLimits) -> None:
        self._listener = listener
        self._limits = limits
        self._disconnects = Disconnects()

    async def answer(self, exchange: Exchange) -> Sendable:
        """The reply to one request. Raises ServingError, ClientGone."""
        raise NotImplementedError

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        exchange = Exchange(scope, receive, loop.time())
        code = CLIENT_GONE
        try:
            reply = await self._reply(exchange)
            code = str(reply.status)
            await reply.send(send)
        except ClientGone:
            pass
        finally:
            seconds = loop.time() - exchange.started_s
            model, version, signature = exchange.model, exchange.version, exchange.signature
            self._listener(RequestFinished(self.name, code, model, version, signature, seconds))

    async def _reply(self, exchange: Exchange) -> Sendable:
        """The answer, errors included. Raises ClientGone."""
        try:
            return await self.answer(exchange)
        except ServingError as error:
            return error_reply(error)
        except ClientGone:
            raise
        except Exception:
            log.exception("A bug answered %s %s", exchange.scope["method"], exchange.scope["path"])
            return internal_error()

    # --- what answers are made with ---

    async def read(self, exchange: Exchange) -> bytes:
        """The whole body, inflated. Raises as `read_body` does."""
        return await read_body(exchange.scope, exchange.receive, self._limits.max_body_bytes)

    async def infer(self, exchange: Exchange, model: Model, request: InferenceRequest) -> InferenceResponse:
        """Raises as Model.infer does; ClientGone as soon as nobody waits for the answer any more."""
        with self._disconnects.watch(exchange.receive):
            return await model.infer(request)

    def deadline_s(self, exchange: Exchange) -> float:
        """When the configured time is over, or the caller's where that is shorter. Raises InvalidRequest."""
        longest_ms = self._limits.request_timeout_ms
        wanted = exchange.header(_TIMEOUT_HEADER)
        milliseconds = longest_ms if wanted is None else min(_milliseconds(wanted), longest_ms)
        return exchange.started_s + milliseconds / 1e3


def _milliseconds(value: bytes) -> float:
    try:
        milliseconds = float(value)
    except ValueError:
        milliseconds = 0.0
    if not milliseconds > 0:
        text = value.decode("latin-1")[:64]
        raise InvalidRequest(f"Header X-Request-Timeout-Ms must be a number of milliseconds above 0, not {text!r}")
    return milliseconds
