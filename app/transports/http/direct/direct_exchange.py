"""A request on the fast path: to the batcher and back without ASGI, a task or a future."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from app.codecs.at_once import TakesLong
from app.core.errors import WouldBeLate
from app.core.inference import Array, InferenceRequest
from app.core.interfaces import Cancellable
from app.core.reply import Answer
from app.transports.fairness.fair_queue import Share
from app.transports.http.exchange import Coalesced, Computation, Exchange, failure_reply
from app.transports.http.head import RequestHead
from app.transports.http.http_api import LONG_BODY_BYTES, HttpApi
from app.transports.http.late_replies import ReplyLater
from app.transports.http.rejections import MOST_BYTES, Rejection
from app.transports.http.replies import CLIENT_GONE, Sendable, content_bytes
from app.transports.http.server_timing import server_timing
from app.transports.memory.reply_room import reserve_outputs
from app.transports.request_trace import rows_of

logger = logging.getLogger(__name__)


class ReplyWriter(Protocol):
    """The connection or the stream that the reply is written to.

    Attributes:
        http_version: how its replies are written.
    """

    tasks: set[asyncio.Task[None]]
    http_version: str

    @property
    def share(self) -> Share:
        """The connection's share of the event loop."""

    @property
    def address(self) -> str:
        """The client's address, without the port."""

    def reply(self, exchange: DirectExchange, reply: Sendable, now: float) -> None:
        """Writes the reply; the connection is free for the next request."""

    def ok_lines(self, content_type: bytes, timing: bytes) -> bytes:
        """The lines that replies with status 200 begin with now, up to Content-Length's value, in a version of HTTP."""

    def reply_ok(self, exchange: DirectExchange, start: bytes, body: bytes, now: float) -> None:
        """Writes a reply with status 200, as `reply` does; `start` is what `ok_lines` gave."""

    def abort(self) -> None:
        """Closes the connection at once."""


class DirectExchange(Exchange):
    """One request and its reply on a connection of ours; for the batcher it is the `Reply`.

    Attributes:
        begun: the request was submitted, alone or together with others, or failed before it could be.
        answered: the reply is decided; nothing may decide it again. Long replies are still being written then.
        response_complete: the reply was given to the connection, or the client has gone.
    """

    __slots__ = (
        "_computation", "_connection", "_handle", "_reserved", "_short_body", "answered", "begun", "http_version",
        "keep_alive", "protocol", "response_complete",
    )  # fmt: skip

    def __init__(
        self,
        connection: ReplyWriter,
        protocol: HttpApi,
        head: RequestHead,
        *,
        keep_alive: bool,
        request_id: bytes = b"",
    ) -> None:
        super().__init__(head, protocol.clock(), request_id)
        self._connection = connection
        self.http_version = connection.http_version
        self.protocol = protocol
        self._computation: Computation | None = None
        self._short_body = b""  # for the rejection of others like it
        self._handle: Cancellable | None = None
        self._reserved = 0.0  # for its outputs, until they are there
        self.answered = False
        self.begun = False
        self.keep_alive = keep_alive
        self.response_complete = False

    @property
    def address(self) -> str:
        return self._connection.address

    @property
    def share(self) -> Share:
        """The connection's part of the event loop."""
        return self._connection.share

    @property
    def caller(self) -> str:
        """The caller; empty if callers are not told apart."""
        return self.protocol.caller(self)

    def begin(self, body: bytes) -> None:
        """Submits the request, whose body is complete; a long body is read beside the event loop before."""
        self.begun = True
        if len(body) <= MOST_BYTES:
            self._short_body = body
        elif len(body) >= LONG_BODY_BYTES:
            self._start(self._begin_later(body))
            return
        try:
            self._submit(self.protocol.begin(self, body))
        except TakesLong:
            self._start(self._begin_later(body))
        except Exception as error:
            self.set_exception(error)

    async def _begin_later(self, body: bytes) -> None:
        async def go_on(computation: Computation) -> None:
            if not self.answered:  # else the client has gone
                self._submit(computation)

        try:
            await self.protocol.begin_later(self, body, go_on)
        except Exception as error:
            if not self.answered:
                self.set_exception(error)

    def _submit(self, computation: Computation) -> None:
        self._computation = computation
        self.protocol.name_caller(computation.request, self)
        if self._reserved:  # it is submitted again where the version was unloaded meanwhile
            self._give_back()
        memory = self.protocol.options.memory
        if not memory.room.unlimited:
            self._reserved = reserve_outputs(memory, computation.model, computation.request)
        self._handle = computation.model.submit(computation.request, self)

    def reject_by_head(self, body: bytes) -> bool:
        """Rejects the request without parsing its body, if an earlier rejection with the same head still applies."""
        rejection = self.head.rejection
        if rejection is None or not rejection.holds(body, self.protocol.clock()):
            return False
        self.answered = True
        self.asked = rejection.asked
        self._send(rejection.reply)
        self.protocol.note_late()
        return True

    def submitted(self, handle: Cancellable) -> None:
        """The request was submitted together with others; `handle` cancels it."""
        self.begun = True
        self._handle = handle

    def abandon(self) -> None:
        if not self.response_complete:
            self.answered = self.response_complete = True
            self._finish(CLIENT_GONE, self.protocol.clock())

    def answer(
        self, coalesced: Coalesced, number: int, outputs: dict[str, Array], timing: bytes, *, may_be_long: bool
    ) -> None:
        """Replies to the request of this number with its own rows of a coalesced call: [rows, ...] by output name.

        `may_be_long` is false if they are known not to be long: this is decided once for all of the call.
        """
        self.answered = True
        self.timing = timing
        self._handle = None  # it is complete: nothing to cancel
        reply: Sendable | ReplyLater
        try:
            reply = coalesced.reply(number, outputs, may_be_long)
        except Exception as error:
            reply = failure_reply(error, self)
        self._send_when_written(reply)

    def ok_lines(self, content_type: bytes, timing: bytes) -> bytes:
        """The beginning of the replies to requests of one call."""
        return self._connection.ok_lines(content_type, timing)

    def answer_ok(self, start: bytes, body: bytes, asked: tuple[str, int, str], now: float) -> bool:
        """Replies to one of several requests of a call at `now` (monotonic seconds). Never raises.

        Returns whether the reply was written: then the caller sends the event.

        Args:
            start: what `ok_lines` gave, of one of them in the same version of HTTP.
            asked: model, version and signature.
        """
        self.answered = True
        self._handle = None  # it is complete: nothing to cancel
        self.asked = asked
        try:
            self._connection.reply_ok(self, start, body, now)
        except Exception:
            self._lose_reply()
            return False
        self.protocol.note_end(self, "200", now, len(body))
        return True

    # --- the batcher's Reply ---

    def done(self) -> bool:
        return self.answered

    def set_result(self, answer: Answer, /) -> None:
        computation = self._computation
        assert computation is not None  # noqa: S101 - answers come after `begin`
        self.answered = True
        self._handle = None  # it is complete: nothing to cancel
        if self._reserved:
            self._give_back()
        try:
            self.timing = server_timing(answer.timing)
            if self.trace is not None:
                self.trace.computed(answer.timing, rows_of(computation.request.inputs), self.protocol.clock())
            reply = computation.reply(computation.model.response(computation.request, answer))
        except Exception as error:
            reply = failure_reply(error, self)
        self._send_when_written(reply)

    def set_exception(self, exception: Exception, /) -> None:
        self.answered = True
        if isinstance(exception, WouldBeLate) and self._computation is not None:  # it began alone
            self._remember_rejection(exception, self._computation.request)
        self.protocol.note_denied(exception, self)
        self._send(failure_reply(exception, self))

    def _remember_rejection(self, rejected: WouldBeLate, request: InferenceRequest) -> None:
        """Lets the rejection apply to later requests with the same head (rejections.py).

        Keeps nothing if callers are told apart by address: another caller's request with this head may be in time.
        """
        outline = self.protocol.outline(self.head, self._short_body)
        one_caller = not request.caller or self.head.permit is not None
        if outline is not None and one_caller:
            now = self.protocol.clock()
            rejection = Rejection.of(rejected, outline, now, self.asked, now - self.started_s)
            self.head.rejection = rejection or self.head.rejection

    # --- the end ---

    def _send_when_written(self, reply: Sendable | ReplyLater) -> None:
        if isinstance(reply, ReplyLater):
            self._start(self._send_later(reply))
        else:
            self._send(reply)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs it as a task, which the server awaits when it stops."""
        task = asyncio.ensure_future(work)
        self._connection.tasks.add(task)
        task.add_done_callback(self._connection.tasks.discard)

    async def _send_later(self, later: ReplyLater) -> None:
        reserved = 0.0
        try:
            reserved = await later.reserve(self.protocol.options.memory)
            self._send(await later.written)
        except Exception as error:
            self._send(failure_reply(error, self))
        finally:
            self.protocol.give_back(reserved)

    def _send(self, reply: Sendable) -> None:
        """Never raises: other requests of a batch are answered after it."""
        if self.response_complete:
            return
        now = self.protocol.clock()
        try:
            self._connection.reply(self, reply, now)
        except Exception:
            self._lose_reply()
        else:
            self._finish(str(reply.status), now, 0 if self.protocol.access is None else content_bytes(reply))

    def _lose_reply(self) -> None:
        logger.exception("A reply could not be written; its connection is closed")
        self.abandon()
        self._connection.abort()

    def _give_back(self) -> None:
        reserved, self._reserved = self._reserved, 0.0
        self.protocol.give_back(reserved)

    def _finish(self, code: str, now: float, size: int = 0) -> None:
        if self._reserved:
            self._give_back()
        if self._handle is not None:
            self._handle.cancel()
        self._computation = self._handle = None
        self._short_body = b""
        self.protocol.finished(self, code, now, size)
