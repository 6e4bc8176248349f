"""The engine's end of one connection from a frontend: it submits requests and sends their answers."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from app.core.errors import ModelNotReady, ServingError
from app.core.events import Event
from app.core.inference import InferenceRequest
from app.core.interfaces import Cancellable, ServedModel
from app.core.joining.groups import rows_of
from app.core.reply import ANSWERED, COMPLETED, Answer, Reply
from app.frontends.channel.messages import EVENTS, QUICK_S, MessageConnection, MessageKind
from app.frontends.channel.remote_errors import encode_error
from app.frontends.channel.shared_memory import SharedMemoryReader, SharedMemoryWriter
from app.frontends.channel.tensor_messages import decode, encode, skip
from app.frontends.engine.messages_of_a_turn import CoalescedMessage, MessagesOfATurn
from app.transports.fairness.fair_queue import Share

logger = logging.getLogger(__name__)

_ANSWER = int(MessageKind.ANSWER)

#: Names and dtypes of tensors, in the order in which they are sent.
_Tensors = Sequence[tuple[str, np.dtype[Any]]]


class ServedEngine(Protocol):
    """The engine, as connections from frontends use it."""

    #: Joins the coalesced messages of all connections.
    together: MessagesOfATurn

    @property
    def models(self) -> Mapping[int, ServedModel]:
        """The models that can be called, by their ids in the snapshot."""

    async def query(self, name: str, arguments: Sequence[Any]) -> Any:
        """The answer to the query `name`. Raises ServingError."""

    def tell(self, event: Event) -> None:
        """Counts an event of a frontend."""

    def weigh(self, name: str, weight: float) -> None:
        """Takes the weight of a caller, which a frontend knows."""

    def connected(self, connection: FrontendConnection) -> None: ...

    def disconnected(self, connection: FrontendConnection) -> None: ...


class ServedCall(NamedTuple):
    """The definition of a call number: the model, signature and outputs that its requests ask for."""

    model_id: int
    signature: str
    outputs: tuple[str, ...]
    inputs: _Tensors
    answers: _Tensors


@dataclass(slots=True, eq=False, repr=False)
class ServedRequest:
    """A request in the batcher; as its reply it sends the answer to the frontend.

    rows: the rows of each coalesced request; empty for a single request.
    """

    connection: FrontendConnection
    id: int
    call: ServedCall
    rows: Sequence[int] = ()
    handle: Cancellable = COMPLETED
    answered: bool = False

    def done(self) -> bool:
        return self.answered

    def set_result(self, answer: Answer, /) -> None:
        self.answered = True
        self.connection.answer(self, answer)

    def set_exception(self, error: BaseException, /) -> None:
        self.answered = True
        self.connection.reject(self, error)

    def cancel(self) -> None:
        self.answered = True
        self.handle.cancel()

    # --- coalesced requests ---

    def submitted(self, handle: Cancellable) -> None:
        self.handle = handle

    def separate(self) -> Sequence[Reply]:
        return [ANSWERED] * len(self.rows) if self.answered else self.connection.apart(self)


class FrontendConnection(MessageConnection):
    """Submits a frontend's requests in the order of their arrival, and cancels them when the connection ends.

    Args:
        requests, answers: shared memory of the two directions.
    """

    def __init__(self, engine: ServedEngine, requests: SharedMemoryReader, answers: SharedMemoryWriter) -> None:
        super().__init__(incoming=requests)
        self.draining = False  # it sends no more requests
        self._engine = engine
        self._answers = answers

        # What the frontend has defined and asked.
        self._calls: dict[int, ServedCall | None] = {}
        self._waiting: dict[int, ServedRequest] = {}
        self._queries: set[asyncio.Task[None]] = set()
        self._pages = Share(f"{self._share.peer}: pages")  # its requests do not wait behind these
        self._syncs: deque[asyncio.Future[None]] = deque()

        self._handlers = {
            MessageKind.REQUEST: self._request,
            MessageKind.DEFINE: self._define,
            MessageKind.CANCEL: self._cancel,
            MessageKind.QUERY: self._query,
            MessageKind.EVENT: self._event,
            MessageKind.WEIGH: self._engine.weigh,
            MessageKind.SYNCED: self._synced,
            MessageKind.DRAINING: self._drains,
            MessageKind.FREE: answers.free,
        }

    def sync(self) -> asyncio.Future[None]:
        """A future, done when the frontend has handled every message so far and sent its counts, or is disconnected."""
        synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._syncs.append(synced)
        self.send(MessageKind.SYNC)
        return synced

    # --- answers ---

    def answer(self, waiting: ServedRequest, answer: Answer) -> None:
        """Sends the answer to a request. Never raises: the caller has other requests to answer."""
        self._release(waiting)
        try:
            outputs, memory = answer.outputs, self._answers
            tensors = [encode(outputs[name], dtype, memory) for name, dtype in waiting.call.answers]
            timing = answer.timing
            self.quick = timing.compute_s < QUICK_S
            self.send(_ANSWER, waiting.id, timing.queue_s, timing.compute_s, timing.rows, tensors, *timing.steps)
        except Exception as error:
            logger.exception("An answer of signature %r cannot be sent", waiting.call.signature)
            self.send(MessageKind.ERROR, waiting.id, *encode_error(error))

    def reject(self, waiting: ServedRequest, error: BaseException) -> None:
        self._release(waiting)
        self.send(MessageKind.ERROR, waiting.id, *encode_error(error))

    def apart(self, waiting: ServedRequest) -> list[ServedRequest]:
        """The own replies of the requests in a coalesced message. Tells the frontend."""
        self._waiting.pop(waiting.id, None)
        self.send(MessageKind.APART, waiting.id)
        apart = [ServedRequest(self, waiting.id + 1 + place, waiting.call) for place in range(len(waiting.rows))]
        for each in apart:
            each.answered = waiting.answered
            self._waiting[each.id] = each
        return apart

    def _release(self, waiting: ServedRequest) -> None:
        del self._waiting[waiting.id]
        waiting.handle.cancel()

    # --- the connection ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._engine.connected(self)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._turns.forget(self._pages)
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            each.cancel()
        while self._syncs:
            self._synced()
        self._engine.disconnected(self)

    # --- messages from the frontend ---

    def _define(self, number: int, model_id: int, signature_name: str, outputs: tuple[str, ...]) -> None:
        model = self._engine.models.get(model_id)
        if model is None:
            self._calls[number] = None
            return
        signature = model.signature(signature_name)
        inputs = [(name, spec.dtype) for name, spec in signature.inputs.items()]
        answers = [(name, signature.outputs[name].dtype) for name in outputs or signature.outputs]
        self._calls[number] = ServedCall(model_id, signature_name, outputs, inputs, answers)

    def _request(  # noqa: PLR0917 - the elements of a message
        self,
        request_id: int,
        number: int,
        deadline_s: float,
        priority: int,
        caller: str,
        rows: Sequence[int],
        tensors: Sequence[Any],
    ) -> None:
        # 1. The model may have left since the frontend resolved it.
        call = self._calls[number]
        model = None if call is None else self._engine.models.get(call.model_id)
        if call is None or model is None:
            skip(tensors, self._incoming)
            gone = ModelNotReady("This version of the model is being unloaded")
            self.send(MessageKind.ERROR, request_id, *encode_error(gone))
            return

        # 2. A coalesced message waits for those of other frontends; a single request must not overtake it.
        waiting = self._waiting[request_id] = ServedRequest(self, request_id, call, rows)
        named, memory = zip(call.inputs, tensors, strict=True), self._incoming
        try:
            inputs = {name: decode(tensor, dtype, memory) for (name, dtype), tensor in named}
            request = InferenceRequest(inputs, call.signature, call.outputs, deadline_s, priority, caller)
            if rows:
                submit = partial(self._submit_coalesced, model, request, waiting)
                self._engine.together.add(CoalescedMessage(model, request, waiting, submit))
            else:
                self._engine.together.submit()
                waiting.handle = model.submit(request, waiting)
        except Exception as error:
            self._reject_unsubmitted(waiting, error)

    def _submit_coalesced(self, model: ServedModel, request: InferenceRequest, waiting: ServedRequest) -> None:
        if waiting.answered:
            return

        # 1. Submit the requests as one.
        arrivals_s = [self._loop.time()] * len(waiting.rows)
        try:
            handle = model.submit_coalesced(request, arrivals_s, waiting)
        except Exception as error:
            self._reject_unsubmitted(waiting, error)
            return
        if handle is not None:
            waiting.handle = handle
            return

        # 2. Submit each by itself, if there is no room for all.
        end = 0
        for own, count in zip(self.apart(waiting), waiting.rows, strict=True):
            start, end = end, end + count
            try:
                own.handle = model.submit(rows_of(request, start, end), own)
            except Exception as error:
                self._reject_unsubmitted(own, error)

    def _reject_unsubmitted(self, waiting: ServedRequest, error: Exception) -> None:
        """Rejects this request alone, also for a bug."""
        if not isinstance(error, ServingError):
            logger.exception("A request of signature %r failed with a bug", waiting.call.signature)
        waiting.set_exception(error)

    def _cancel(self, request_id: int) -> None:
        waiting = self._waiting.pop(request_id, None)
        if waiting is not None:  # else it is answered already
            waiting.cancel()

    def _query(self, request_id: int, name: str, arguments: Sequence[Any]) -> None:
        task = asyncio.create_task(self._answer_query(request_id, name, arguments))
        self._queries.add(task)
        task.add_done_callback(self._queries.discard)

    async def _answer_query(self, request_id: int, name: str, arguments: Sequence[Any]) -> None:
        try:
            await self._turns.may_step(self._pages)  # any number may have come at once
            if self._pages.closed:  # the frontend has gone: its queries that have not begun are dropped
                return
            self.send(MessageKind.RESULT, request_id, await self._engine.query(name, arguments))
        except Exception as error:
            if not isinstance(error, ServingError):
                logger.exception("The query %r failed with a bug", name)
            self.send(MessageKind.ERROR, request_id, *encode_error(error))

    def _event(self, name: str, *fields: Any) -> None:
        self._engine.tell(EVENTS[name](*fields))

    def _synced(self) -> None:
        synced = self._syncs.popleft()
        if not synced.done():
            synced.set_result(None)

    def _drains(self) -> None:
        self.draining = True

    def __repr__(self) -> str:
        return f"<FrontendConnection {len(self._waiting)} requests waiting, {len(self._queries)} queries>"
