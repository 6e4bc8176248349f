"""The frontend's end of its connection to the engine: it sends requests and queries and hands on the answers."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from app.core.bounded_cache import BoundedCache
from app.core.errors import DeadlineExceeded, ModelNotReady, ShuttingDown
from app.core.inference import BatchTiming, InferenceRequest, StepTiming
from app.core.optional_inputs import with_left_out
from app.core.reply import Answer, CoalescedReply, Reply
from app.core.validation import check_outputs
from app.frontends.channel.catalog_snapshot import CatalogSnapshot
from app.frontends.channel.messages import HELLO, QUICK_S, MessageConnection, MessageKind
from app.frontends.channel.remote_errors import decode_error
from app.frontends.channel.shared_memory import SharedMemoryReader, SharedMemoryWriter, create_memory
from app.frontends.channel.tensor_messages import decode, encode, skip
from app.frontends.frontend.remote_model import RemoteModel

_REQUEST = int(MessageKind.REQUEST)

#: The most call numbers; one stands for a model, a signature and outputs, which callers choose. Chosen.
_MAX_CALLS = 1024

#: Seconds after its deadline at which a request is given up here. Chosen; the engine keeps deadlines, while it runs.
_GRACE_S = 0.1

#: What `_pending` gives for a request that was cancelled or given up.
_NOTHING: tuple[None, tuple[()], float, int] = (None, (), inf, 0)


class EngineObserver(Protocol):
    """Gets what the engine sends beside answers."""

    def on_catalog(self, connection: EngineConnection, snapshot: CatalogSnapshot) -> None:
        """The catalog changed."""

    def on_health(self, dead: Sequence[str], unready: Sequence[str], problems: Sequence[str]) -> None:
        """Several times a second: reasons to restart, reasons to send no requests, models that do not work."""

    def send_counts(self, connection: EngineConnection) -> None:
        """Sends the engine every event that was counted so far."""


#: Names and dtypes of outputs, in the order in which they are sent.
_Outputs = Sequence[tuple[str, np.dtype[Any]]]

#: A reply that waits for its answer, the outputs, the deadline in monotonic seconds, and the number of requests in a
#: coalesced message (0: a single request or a query).
_Pending = tuple[Reply, _Outputs, float, int]


class RemoteCall(NamedTuple):
    """The definition of a call number: the inputs and outputs of its requests, with the dtypes of the signature."""

    number: int
    inputs: Mapping[str, np.dtype[Any]]
    outputs: _Outputs


@dataclass(slots=True, eq=False)
class RemoteRequestHandle:
    """The handle of a request that was sent. `parts`: the number of requests in a coalesced message, else 0."""

    connection: EngineConnection
    request_id: int
    parts: int = 0

    def cancel(self) -> None:
        self.connection.cancel(self.request_id, self.parts)

    def cancel_one(self, number: int) -> None:
        """See CoalescedHandle. No effect until the engine has taken the message apart: the others need its call."""
        self.connection.cancel(self.request_id + 1 + number)


class EngineConnection(MessageConnection):
    """Sends requests and queries. Each reply gets the engine's answer, or ModelNotReady if the connection ends.

    It is the RequestChannel of its models.

    Args:
        requests, answers: shared memory of the two directions.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        observer: EngineObserver,
        requests: SharedMemoryWriter,
        answers: SharedMemoryReader,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(incoming=answers)
        # The connection, its observer, and the shared memory that it writes.
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.draining = False
        self._observer = observer
        self._requests = requests

        # Call numbers, and replies that wait.
        self._calls = BoundedCache[tuple[int, str, tuple[str, ...]], RemoteCall](_MAX_CALLS)
        self._defined = 0
        self._last_id = 0
        self._pending: dict[int, _Pending] = {}
        self._idle: asyncio.Future[None] | None = None

        # No pending deadline is earlier than `_looks_s`, which the one timer waits for.
        self._clock = clock
        self._looks_s = inf
        self._look_timer: asyncio.TimerHandle | None = None

        # Messages from the engine.
        self._handlers = {
            MessageKind.ANSWER: self._answer,
            MessageKind.ERROR: self._error,
            MessageKind.APART: self._apart,
            MessageKind.RESULT: self._result,
            MessageKind.CATALOG: self._catalog,
            MessageKind.HEALTH: observer.on_health,
            MessageKind.SYNC: self._sync,
            MessageKind.FREE: requests.free,
        }

    # --- requests ---

    def submit(
        self, model: RemoteModel, request: InferenceRequest, reply: Reply, rows: Sequence[int] = ()
    ) -> RemoteRequestHandle:
        """See RemoteModel.submit. `rows`: the rows of each request, if `request` and `reply` stand for several."""
        # 1. Nothing is sent while this frontend drains or the engine is gone.
        if self.draining:
            raise ShuttingDown("The server is shutting down")
        self._check_open()

        # 2. The number of its call, and its tensors, with inputs that the caller left out.
        call = self._calls.get((model.id, request.signature, request.outputs))
        if call is None:
            call = self._define(model, request)
        inputs, memory = request.inputs, self._requests
        if {name: array.dtype for name, array in inputs.items()} != call.inputs:
            inputs = with_left_out(model.signature(request.signature), inputs)
        tensors = [encode(inputs[name], dtype, memory) for name, dtype in call.inputs.items()]

        # 3. Send it. Each request of a coalesced message has a number of its own, should the engine take them apart.
        number = self._expect(reply, call.outputs, request.deadline_s, len(rows))
        self._last_id += len(rows)
        self.send(_REQUEST, number, call.number, request.deadline_s, request.priority, request.caller, rows, tensors)
        return RemoteRequestHandle(self, number, len(rows))

    def cancel(self, request_id: int, parts: int = 0) -> None:
        """Tells the engine that the answer is not wanted; does nothing if it arrived already.

        `parts`: the requests in a coalesced message, which the engine may have taken apart without our knowing yet.
        """
        whole = self._pending.pop(request_id, None) is not None
        if whole:
            self.send(MessageKind.CANCEL, request_id)
        for part in range(request_id + 1, request_id + 1 + parts):
            if self._pending.pop(part, None) is not None or whole:
                self.send(MessageKind.CANCEL, part)
        self._check_idle()

    async def query(self, name: str, *arguments: Any, timeout_s: float = inf) -> Any:
        """The engine's result of the query `name`. Raises ModelNotReady, DeadlineExceeded, and the engine's error."""
        self._check_open()
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.send(MessageKind.QUERY, self._expect(reply, (), self._clock() + timeout_s), name, arguments)
        return await reply

    async def idle(self) -> None:
        """Returns when every request and query is answered."""
        self._idle = asyncio.get_running_loop().create_future()
        self._check_idle()
        await self._idle

    def begin_drain(self) -> None:
        """Rejects further requests (not queries), and tells the engine that this frontend drains."""
        if not self.draining:
            self.draining = True
            self.send(MessageKind.DRAINING)

    def close(self) -> None:
        """Closes the connection once the messages that were sent are written."""
        self.write()
        self._transport.close()

    def _check_open(self) -> None:
        if self.closed.done():
            raise engine_gone()

    def _expect(self, reply: Any, outputs: _Outputs, deadline_s: float, parts: int = 0) -> int:
        """Keeps a reply until its answer or its deadline comes. Returns the number of its request."""
        self._last_id += 1
        self._pending[self._last_id] = reply, outputs, deadline_s, parts
        if deadline_s < self._looks_s:
            self._look_at(deadline_s)
        return self._last_id

    def _define(self, model: RemoteModel, request: InferenceRequest) -> RemoteCall:
        """Tells the engine a call number for requests like this one. Raises SignatureNotFound, InvalidRequest."""
        signature = model.signature(request.signature)
        check_outputs(signature, request.outputs)
        key = (model.id, request.signature, request.outputs)
        inputs = {name: spec.dtype for name, spec in signature.inputs.items()}
        outputs = [(name, signature.outputs[name].dtype) for name in request.outputs or signature.outputs]
        number = self._defined % _MAX_CALLS  # that of the oldest call, which leaves the cache
        self._defined += 1
        call = self._calls.keep(key, RemoteCall(number, inputs, outputs))
        self.send(MessageKind.DEFINE, call.number, *key)
        return call

    def _check_idle(self) -> None:
        if self._idle is not None and not self._pending and not self._idle.done():
            self._idle.set_result(None)

    # --- deadlines, while the engine does not keep them ---

    def _look_at(self, deadline_s: float) -> None:
        """Sets the one timer to give up, shortly after this deadline, the requests that are late then."""
        if self._look_timer is not None:
            self._look_timer.cancel()
        self._looks_s = deadline_s
        self._look_timer = self._loop.call_later(max(deadline_s - self._clock(), 0.0) + _GRACE_S, self._give_up_late)

    def _give_up_late(self) -> None:
        """Rejects requests whose deadline has passed: a stopped engine answers nothing. A late answer is ignored."""
        self._look_timer, self._looks_s = None, inf
        late_s = self._clock() - _GRACE_S
        for number in [number for number, (_, _, deadline_s, _) in self._pending.items() if deadline_s <= late_s]:
            # The error of one request may have led to the cancel of a later one.
            reply, _, _, parts = self._pending.get(number, _NOTHING)
            self.cancel(number, parts)
            if reply is not None and not reply.done():
                reply.set_exception(DeadlineExceeded("The deadline passed before the engine answered"))
        earliest_s = min((deadline_s for _, _, deadline_s, _ in self._pending.values()), default=inf)
        if earliest_s < self._looks_s:
            self._look_at(earliest_s)

    # --- the connection ---

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        if self._look_timer is not None:
            self._look_timer.cancel()
        self.closed.set_result(None)
        pending, self._pending = self._pending, {}
        for reply, *_ in pending.values():
            if not reply.done():
                reply.set_exception(engine_gone())
        self._check_idle()

    # --- messages from the engine ---

    def _answer(
        self,
        request_id: int,
        queue_s: float,
        compute_s: float,
        rows: int,
        tensors: Sequence[Any],
        *steps: Sequence[Any],
    ) -> None:
        self.quick = compute_s < QUICK_S
        reply, named, *_ = self._pending.pop(request_id, _NOTHING)
        if reply is None or reply.done():  # cancelled meanwhile
            skip(tensors, self._incoming)
        else:
            memory = self._incoming
            outputs = {name: decode(each, dtype, memory) for (name, dtype), each in zip(named, tensors, strict=True)}
            reply.set_result(
                Answer(outputs, BatchTiming(queue_s, compute_s, rows, tuple([StepTiming(*step) for step in steps])))
            )
        self._check_idle()

    def _error(self, request_id: int, kind: str, text: str, retry_after_s: float | None) -> None:
        reply, *_ = self._pending.pop(request_id, _NOTHING)
        if reply is not None and not reply.done():
            reply.set_exception(decode_error(kind, text, retry_after_s))
        self._check_idle()

    def _apart(self, request_id: int) -> None:
        """The engine answers each request of a coalesced message by its own number, from now on."""
        reply, outputs, deadline_s, _ = self._pending.pop(request_id, _NOTHING)
        if reply is not None:
            for own_id, own in enumerate(cast(CoalescedReply, reply).separate(), request_id + 1):
                self._pending[own_id] = own, outputs, deadline_s, 0

    def _result(self, request_id: int, result: Any) -> None:
        reply, *_ = self._pending.pop(request_id, _NOTHING)
        if reply is not None and not reply.done():
            reply.set_result(result)
        self._check_idle()

    def _catalog(self, snapshot: bytes) -> None:
        self._observer.on_catalog(self, pickle.loads(snapshot))  # noqa: S301 - from Ferry

    def _sync(self) -> None:
        self._observer.send_counts(self)
        self.send(MessageKind.SYNCED)

    def __repr__(self) -> str:
        state = "closed" if self.closed.done() else "draining" if self.draining else "open"
        return f"<EngineConnection {state}, {len(self._pending)} pending>"


async def connect(path: Path, observer: EngineObserver) -> EngineConnection:
    """Connects to the supervisor's socket; what is sent waits there until an engine runs. Raises OSError."""
    loop = asyncio.get_running_loop()
    files = [create_memory(), create_memory()]
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.setblocking(False)
        await loop.sock_connect(connection, str(path))
        socket.send_fds(connection, [HELLO], files)
        made = EngineConnection(observer, SharedMemoryWriter(files[0]), SharedMemoryReader(files[1]))
        await loop.create_unix_connection(lambda: made, sock=connection)
    except BaseException:
        connection.close()
        raise
    finally:
        for file in files:
            os.close(file)
    return made


def engine_gone() -> ModelNotReady:
    return ModelNotReady("The engine is restarting")
