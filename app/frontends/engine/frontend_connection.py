"""The engine's end of one connection from a frontend."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from app.core.errors import ModelNotReady, ServingError
from app.core.inference import InferenceRequest
from app.core.interfaces import Cancellable, ServedModel
from app.core.reply import Answer
from app.frontends.channel.arena import ReadingArena, WritingArena
from app.frontends.channel.errors import encode_error
from app.frontends.channel.messages import Kind, SendBuffer, new_unpacker
from app.frontends.channel.tensors import decode, encode, skip

logger = logging.getLogger(__name__)

_ANSWER = int(Kind.ANSWER)

_Named = Sequence[tuple[str, np.dtype[Any]]]


class Host(Protocol):
    """What is behind the connections."""

    @property
    def models(self) -> Mapping[int, ServedModel]:
        """By the number under which a snapshot showed them, while they can be called."""

    async def query(self, name: str, arguments: Sequence[Any]) -> Any:
        """Raises ServingError."""

    def finished(self, labels: tuple[str, str, str, int, str], seconds: Sequence[float]) -> None:
        """A frontend answered requests of one protocol, code, model, version and signature, each in so many seconds."""

    def joined(self, link: FrontendLink) -> None:
        """The connection is there."""

    def left(self, link: FrontendLink) -> None:
        """It ended."""


class _Call(NamedTuple):
    """What requests of one number ask for."""

    model_id: int
    signature: str
    outputs: tuple[str, ...]
    inputs: _Named
    answers: _Named


class _Waiting:
    """A request in the batcher, and where its answer goes."""

    __slots__ = ("_answered", "_link", "call", "handle", "id")

    handle: Cancellable

    def __init__(self, link: FrontendLink, request_id: int, call: _Call) -> None:
        self.id = request_id
        self.call = call
        self._link = link
        self._answered = False

    def done(self) -> bool:
        return self._answered

    def cancelled(self) -> bool:
        return False

    def exception(self) -> BaseException | None:
        return None

    def set_result(self, answer: Answer, /) -> None:
        self._answered = True
        self._link.answer(self, answer)

    def set_exception(self, error: BaseException, /) -> None:
        self._answered = True
        self._link.reject(self, error)

    def cancel(self) -> None:
        self._answered = True
        self.handle.cancel()


class FrontendLink(asyncio.Protocol):
    """Submits what a frontend asks in the order in which it comes; what it waited for leaves the queue when it goes.

    Args:
        requests, answers: the arenas of the two directions.
    """

    def __init__(self, host: Host, requests: ReadingArena, answers: WritingArena) -> None:
        self._host = host
        self._requests = requests
        self._answers = answers
        self._unpacker = new_unpacker()
        self._calls: dict[int, _Call | None] = {}
        self._waiting: dict[int, _Waiting] = {}
        self._queries: set[asyncio.Task[None]] = set()
        self._unseen: deque[asyncio.Future[None]] = deque()
        self._on: Mapping[int, Any] = {
            Kind.REQUEST: self._request,
            Kind.DEFINE: self._define,
            Kind.CANCEL: self._cancel,
            Kind.QUERY: self._query,
            Kind.FINISHED: self._host.finished,
            Kind.SEEN: self._seen,
            Kind.FREE: answers.free,
        }

    def tell(self, kind: Kind, *message: Any) -> None:
        """Sends what nobody answers."""
        self._send_buffer.put(kind, *message)

    def see(self) -> asyncio.Future[None]:
        """Done when the frontend took in everything told so far, and told what it counted; or when it is gone."""
        seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unseen.append(seen)
        self._send_buffer.put(Kind.SEE)
        return seen

    # --- answers ---

    def answer(self, waiting: _Waiting, answer: Answer) -> None:
        """Never raises: whoever answers has others to answer."""
        self._leave(waiting)
        try:
            outputs, arena = answer.outputs, self._answers
            tensors = [encode(outputs[name], dtype, arena) for name, dtype in waiting.call.answers]
            timing = answer.timing
            self._send_buffer.put(_ANSWER, waiting.id, timing.queue_s, timing.compute_s, timing.rows, tensors)
        except Exception as error:
            logger.exception("An answer of signature %r cannot be sent", waiting.call.signature)
            self._send_buffer.put(Kind.ERROR, waiting.id, *encode_error(error))

    def reject(self, waiting: _Waiting, error: BaseException) -> None:
        self._leave(waiting)
        self._send_buffer.put(Kind.ERROR, waiting.id, *encode_error(error))

    def _leave(self, waiting: _Waiting) -> None:
        del self._waiting[waiting.id]
        waiting.handle.cancel()

    # --- the connection ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._send_buffer = SendBuffer(cast(asyncio.Transport, transport), self._tell_unread)
        self._host.joined(self)

    def data_received(self, data: bytes) -> None:
        self._unpacker.feed(data)
        on = self._on
        for message in self._unpacker:
            on[message[0]](*message[1:])

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            each.cancel()
        while self._unseen:
            self._seen()
        self._host.left(self)

    def _tell_unread(self) -> None:
        if unread := self._requests.take_unread():
            self._send_buffer.put(Kind.FREE, unread)

    # --- what comes ---

    def _define(self, number: int, model_id: int, signature_name: str, outputs: tuple[str, ...]) -> None:
        model = self._host.models.get(model_id)
        if model is None:
            self._calls[number] = None
            return
        signature = model.signature(signature_name)
        inputs = [(name, spec.dtype) for name, spec in signature.inputs.items()]
        answers = [(name, signature.outputs[name].dtype) for name in outputs or signature.outputs]
        self._calls[number] = _Call(model_id, signature_name, outputs, inputs, answers)

    def _request(self, request_id: int, number: int, deadline_s: float, priority: int, tensors: Sequence[Any]) -> None:
        call = self._calls[number]
        model = None if call is None else self._host.models.get(call.model_id)
        if call is None or model is None:
            skip(tensors, self._requests)
            gone = ModelNotReady("This version of the model is being unloaded")
            self._send_buffer.put(Kind.ERROR, request_id, *encode_error(gone))
            return
        waiting = _Waiting(self, request_id, call)
        try:
            named, arena = zip(call.inputs, tensors, strict=True), self._requests
            inputs = {name: decode(tensor, dtype, arena) for (name, dtype), tensor in named}
            request = InferenceRequest(inputs, call.signature, call.outputs, deadline_s, priority)
            waiting.handle = model.submit(request, waiting)
        except Exception as error:
            if not isinstance(error, ServingError):
                logger.exception("A bug rejected a request to %r", model)
            self._send_buffer.put(Kind.ERROR, request_id, *encode_error(error))
        else:
            self._waiting[request_id] = waiting

    def _cancel(self, request_id: int) -> None:
        waiting = self._waiting.pop(request_id, None)
        if waiting is not None:  # else its answer is on its way
            waiting.cancel()

    def _query(self, request_id: int, name: str, arguments: Sequence[Any]) -> None:
        task = asyncio.create_task(self._answer_query(request_id, name, arguments))
        self._queries.add(task)
        task.add_done_callback(self._queries.discard)

    async def _answer_query(self, request_id: int, name: str, arguments: Sequence[Any]) -> None:
        try:
            self._send_buffer.put(Kind.RESULT, request_id, await self._host.query(name, arguments))
        except Exception as error:
            if not isinstance(error, ServingError):
                logger.exception("A bug answered %s", name)
            self._send_buffer.put(Kind.ERROR, request_id, *encode_error(error))

    def _seen(self) -> None:
        seen = self._unseen.popleft()
        if not seen.done():
            seen.set_result(None)

    def __repr__(self) -> str:
        return f"<FrontendLink, {len(self._waiting)} requests waiting>"
