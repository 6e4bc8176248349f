"""Both ends of a connection in one event loop, with a model between them that the test answers for."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from app.core.batch_sizes import BatchSizes
from app.core.errors import InvalidRequest, ServingError
from app.core.inference import STRING, Array, BatchTiming, InferenceRequest, ModelSignature, TensorSpec
from app.core.reply import Answer, Reply
from app.core.validation import find_signature
from app.frontends.channel.catalog_snapshot import CatalogSnapshot
from app.frontends.channel.shared_memory import (
    SHARED_MEMORY_BYTES,
    SharedMemoryReader,
    SharedMemoryWriter,
    create_memory,
)
from app.frontends.engine.frontend_connection import FrontendConnection
from app.frontends.engine.messages_of_a_turn import MessagesOfATurn
from app.frontends.frontend.engine_connection import EngineConnection
from app.frontends.frontend.remote_model import RemoteModel
from tests.support.waiting import until

_ROWS = (None, None)
SIGNATURES = {
    "serving_default": ModelSignature(
        "serving_default",
        {"x": TensorSpec("x", np.dtype(np.float32), _ROWS), "text": TensorSpec("text", STRING, (None,))},
        {"y": TensorSpec("y", np.dtype(np.float32), _ROWS), "z": TensorSpec("z", np.dtype(np.int64), _ROWS)},
    )
}


class Submitted:
    """A request as the engine's model got it."""

    def __init__(self, request: InferenceRequest, reply: Reply) -> None:
        self.request = request
        self.reply = reply
        self.cancelled = 0

    def cancel(self) -> None:
        self.cancelled += 1

    def answer(self, **outputs: Array) -> None:
        self.reply.set_result(Answer(outputs, BatchTiming(0.25, 0.5, 3)))


class FakeModel:
    """Keeps what is submitted; a text of `reject` is rejected, of `bug` a bug."""

    name, version, sizes, signatures = "m", 1, BatchSizes((1, 2)), SIGNATURES

    def __init__(self) -> None:
        self.submitted: list[Submitted] = []
        self.coalesced: list[Any] = []
        self.has_room = True

    def submit_coalesced(self, request: InferenceRequest, arrivals_s: Sequence[float], reply: Any) -> Any:
        if not self.has_room:
            return None
        self.coalesced.append(reply)
        return self.submit(request, reply)

    def signature(self, name: str) -> ModelSignature:
        return find_signature(SIGNATURES, name)

    def submit(self, request: InferenceRequest, reply: Reply) -> Submitted:
        word = request.inputs["text"].tolist()[0]
        if word == b"reject":
            raise InvalidRequest("not that word")
        if word == b"bug":
            raise KeyError(word)
        self.submitted.append(Submitted(request, reply))
        return self.submitted[-1]


class FakeEngine:
    def __init__(self, model: FakeModel) -> None:
        self.models: dict[int, Any] = {7: model}
        self.told: list[Any] = []
        self.tell = self.told.append
        self.connections: list[FrontendConnection] = []
        self.together = MessagesOfATurn(time.monotonic)

    async def query(self, name: str, arguments: Sequence[Any]) -> Any:
        if name == "rejected":
            raise InvalidRequest("no such thing")
        if name == "hangs":
            await asyncio.Event().wait()
        if name == "broken":
            raise KeyError(name)
        return [name, *arguments]

    def weigh(self, name: str, weight: float) -> None:
        self.told.append((name, weight))

    def connected(self, connection: FrontendConnection) -> None:
        self.connections.append(connection)

    def disconnected(self, connection: FrontendConnection) -> None:
        self.connections.remove(connection)


class FakeObserver:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_catalog(self, connection: EngineConnection, snapshot: CatalogSnapshot) -> None:
        self.heard.append(snapshot)

    def on_health(self, dead: Sequence[str], unready: Sequence[str], problems: Sequence[str]) -> None:
        self.heard.append((dead, unready, problems))

    def send_counts(self, connection: EngineConnection) -> None:
        self.heard.append("send_counts")


class ConnectedEnds:
    def __init__(
        self, engine: EngineConnection, frontend: FrontendConnection, served: FakeEngine, observer: FakeObserver
    ) -> None:
        self.engine = engine
        self.frontend = frontend
        self.served = served
        self.observer = observer
        self.model: FakeModel = served.models[7]
        self.now_s = 0.0
        engine._clock = lambda: self.now_s
        self.remote = RemoteModel(engine, 7, "m", 1, sizes=BatchSizes((1, 2)), signatures=SIGNATURES)

    def ask(
        self,
        value: float = 1.0,
        word: bytes = b"w",
        outputs: tuple[str, ...] = ("y",),
        rows: int = 1,
        deadline_s: float = 99.5,
    ) -> Any:
        """The task of a caller who waits for the answer."""
        inputs = {"x": np.full((rows, 2), value, np.float32), "text": np.array([word] * rows, object)}
        request = InferenceRequest(inputs, "serving_default", outputs, deadline_s, 1, "10.0.0.1")
        return asyncio.ensure_future(self.remote.infer(request))

    async def submitted(self, count: int) -> list[Submitted]:
        await until(lambda: len(self.model.submitted) >= count)
        return self.model.submitted


@asynccontextmanager
async def connected_ends(memory_bytes: int = SHARED_MEMORY_BYTES) -> AsyncIterator[ConnectedEnds]:
    loop = asyncio.get_running_loop()
    files = [create_memory(memory_bytes) for _ in range(2)]
    served, observer = FakeEngine(FakeModel()), FakeObserver()
    frontend = FrontendConnection(served, SharedMemoryReader(files[0]), SharedMemoryWriter(files[1]))
    engine = EngineConnection(observer, SharedMemoryWriter(files[0]), SharedMemoryReader(files[1]))
    for file in files:
        os.close(file)
    ours, theirs = socket.socketpair()
    for each in (ours, theirs):
        each.setblocking(False)
    await loop.connect_accepted_socket(lambda: frontend, ours)
    await loop.connect_accepted_socket(lambda: engine, theirs)
    made = ConnectedEnds(engine, frontend, served, observer)
    try:
        yield made
    finally:
        engine.close()
        await engine.closed
        await until(lambda: not served.connections)


async def rejection(asked: Any) -> ServingError:
    try:
        answer = await asked
    except ServingError as error:
        return error
    raise AssertionError(f"It was answered: {answer}")
