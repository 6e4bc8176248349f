"""The frontend's end of one connection to the engine."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from app.core.errors import ModelNotReady, ShuttingDown
from app.core.inference import BatchTiming, InferenceRequest
from app.core.masks import with_masks
from app.core.reply import Answer, Reply
from app.core.validation import check_outputs
from app.frontends.channel.arena import ReadingArena, WritingArena, create_memory
from app.frontends.channel.errors import decode_error
from app.frontends.channel.messages import HELLO, Kind, SendBuffer, new_unpacker
from app.frontends.channel.snapshot import Snapshot
from app.frontends.channel.tensors import decode, encode, skip
from app.frontends.frontend.remote_model import RemoteModel

_REQUEST = int(Kind.REQUEST)

#: Calls are told apart by the outputs wanted, which are the callers' choice; this many keep their number.
_MAX_CALLS = 1024


class Follower(Protocol):
    """Who is told what comes over the connection beside answers."""

    def catalog(self, link: EngineLink, snapshot: Snapshot) -> None:
        """This is what is served from now on."""

    def health(self, dead: Sequence[str], unready: Sequence[str]) -> None:
        """Comes several times a second."""

    def tell(self, link: EngineLink) -> None:
        """The engine wants to know what was counted so far."""


_Outputs = Sequence[tuple[str, np.dtype[Any]]]


class _Call(NamedTuple):
    """What requests of one number ask for, with the dtypes that travel without being told."""

    number: int
    inputs: Mapping[str, np.dtype[Any]]
    outputs: _Outputs


class _Submission:
    """A request on its way."""

    __slots__ = ("_id", "_link")

    def __init__(self, link: EngineLink, request_id: int) -> None:
        self._link = link
        self._id = request_id

    def cancel(self) -> None:
        self._link.cancel(self._id)


class EngineLink(asyncio.Protocol):
    """Sends requests and queries; gives each reply what the engine answers, or ModelNotReady when it goes.

    Args:
        requests, answers: the arenas of the two directions.
    """

    def __init__(self, follower: Follower, requests: WritingArena, answers: ReadingArena) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.draining = False
        self._follower = follower
        self._requests = requests
        self._answers = answers
        self._unpacker = new_unpacker()
        self._last_id = 0
        self._calls: dict[tuple[int, str, tuple[str, ...]], _Call] = {}
        self._pending: dict[int, tuple[Reply, _Outputs]] = {}
        self._idle: asyncio.Future[None] | None = None
        self._on: Mapping[int, Any] = {
            Kind.ANSWER: self._answer,
            Kind.ERROR: self._error,
            Kind.RESULT: self._result,
            Kind.CATALOG: self._catalog,
            Kind.HEALTH: self._health,
            Kind.SEE: self._see,
            Kind.FREE: requests.free,
        }

    # --- requests ---

    def submit(self, model: RemoteModel, request: InferenceRequest, reply: Reply) -> _Submission:
        """See RemoteModel.submit."""
        if self.draining:
            raise ShuttingDown("The server is shutting down")
        self._check_open()
        call = self._calls.get((model.id, request.signature, request.outputs))
        if call is None:
            call = self._define(model, request)
        inputs, arena = request.inputs, self._requests
        if {name: array.dtype for name, array in inputs.items()} != call.inputs:
            inputs = with_masks(model.signature(request.signature), inputs)
        tensors = [encode(inputs[name], dtype, arena) for name, dtype in call.inputs.items()]
        number = self._expect(reply, call.outputs)
        self._send_buffer.put(_REQUEST, number, call.number, request.deadline_s, request.priority, tensors)
        return _Submission(self, number)

    def cancel(self, request_id: int) -> None:
        """Nobody waits for this request's answer; does nothing where it came already."""
        if self._pending.pop(request_id, None) is not None:
            self._send_buffer.put(Kind.CANCEL, request_id)
            self._check_idle()

    async def query(self, name: str, *arguments: Any) -> Any:
        """Raises ModelNotReady where the engine is gone, and whatever ServingError it answers."""
        self._check_open()
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._send_buffer.put(Kind.QUERY, self._expect(reply, ()), name, arguments)
        return await reply

    def tell(self, kind: Kind, *message: Any) -> None:
        """Sends what nobody answers."""
        self._send_buffer.put(kind, *message)

    async def idle(self) -> None:
        """Returns when everything is answered that was asked."""
        self._idle = asyncio.get_running_loop().create_future()
        self._check_idle()
        await self._idle

    def close(self) -> None:
        """What was told still goes out."""
        self._send_buffer.write()
        self._transport.close()

    def _check_open(self) -> None:
        if self.closed.done():
            raise engine_gone()

    def _expect(self, reply: Any, outputs: _Outputs) -> int:
        self._last_id += 1
        self._pending[self._last_id] = reply, outputs
        return self._last_id

    def _define(self, model: RemoteModel, request: InferenceRequest) -> _Call:
        """Gives such requests a number. Raises SignatureNotFound, InvalidRequest."""
        signature = model.signature(request.signature)
        check_outputs(signature, request.outputs)
        if len(self._calls) >= _MAX_CALLS:
            self._calls.clear()
        key = (model.id, request.signature, request.outputs)
        inputs = {name: spec.dtype for name, spec in signature.inputs.items()}
        outputs = [(name, signature.outputs[name].dtype) for name in request.outputs or signature.outputs]
        call = self._calls[key] = _Call(len(self._calls), inputs, outputs)
        self._send_buffer.put(Kind.DEFINE, call.number, *key)
        return call

    def _check_idle(self) -> None:
        if self._idle is not None and not self._pending and not self._idle.done():
            self._idle.set_result(None)

    # --- the connection ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send_buffer = SendBuffer(self._transport, self._tell_unread)

    def data_received(self, data: bytes) -> None:
        self._unpacker.feed(data)
        on = self._on
        for message in self._unpacker:
            on[message[0]](*message[1:])

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self.closed.set_result(None)
        pending, self._pending = self._pending, {}
        for reply, _ in pending.values():
            if not reply.done():
                reply.set_exception(engine_gone())
        self._check_idle()

    def _tell_unread(self) -> None:
        if unread := self._answers.take_unread():
            self._send_buffer.put(Kind.FREE, unread)

    # --- what comes ---

    def _answer(self, request_id: int, queue_s: float, compute_s: float, rows: int, tensors: Sequence[Any]) -> None:
        reply, named = self._pending.pop(request_id, (None, ()))
        if reply is None or reply.done():  # cancelled while it was on its way
            skip(tensors, self._answers)
        else:
            arena = self._answers
            outputs = {name: decode(each, dtype, arena) for (name, dtype), each in zip(named, tensors, strict=True)}
            reply.set_result(Answer(outputs, BatchTiming(queue_s, compute_s, rows)))
        self._check_idle()

    def _error(self, request_id: int, kind: str, text: str, retry_after_s: float | None) -> None:
        reply, _ = self._pending.pop(request_id, (None, ()))
        if reply is not None and not reply.done():
            reply.set_exception(decode_error(kind, text, retry_after_s))
        self._check_idle()

    def _result(self, request_id: int, result: Any) -> None:
        reply, _ = self._pending.pop(request_id, (None, ()))
        if reply is not None and not reply.done():
            reply.set_result(result)
        self._check_idle()

    def _catalog(self, *snapshot: Any) -> None:
        self._follower.catalog(self, Snapshot(*snapshot))

    def _health(self, dead: Sequence[str], unready: Sequence[str]) -> None:
        self._follower.health(dead, unready)

    def _see(self) -> None:
        self._follower.tell(self)
        self._send_buffer.put(Kind.SEEN)

    def __repr__(self) -> str:
        return f"<EngineLink, {len(self._pending)} pending>"


async def connect(path: Path, follower: Follower) -> EngineLink:
    """A connection; the engine answers it as soon as it is there. Raises OSError."""
    loop = asyncio.get_running_loop()
    files = [create_memory(), create_memory()]
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.setblocking(False)
        await loop.sock_connect(connection, str(path))
        socket.send_fds(connection, [HELLO], files)
        link = EngineLink(follower, WritingArena(files[0]), ReadingArena(files[1]))
        await loop.create_unix_connection(lambda: link, sock=connection)
    except BaseException:
        connection.close()
        raise
    finally:
        for file in files:
            os.close(file)
    return link


def engine_gone() -> ModelNotReady:
    return ModelNotReady("The engine is restarting")
