"""Both ends of a connection in one event loop, with a model between them that the test answers for."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from app.core.batch_sizes import BatchSizes
from app.core.errors import InvalidRequest, ServingError
from app.core.inference import STRING, Array, BatchTiming, InferenceRequest, ModelSignature, TensorSpec
from app.core.reply import Answer, Reply
from app.core.validation import find_signature
from app.frontends.channel.arena import ARENA_BYTES, ReadingArena, WritingArena, create_memory
from app.frontends.channel.snapshot import Snapshot
from app.frontends.engine.frontend_connection import FrontendLink
from app.frontends.frontend.engine_connection import EngineLink
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


class FakeHost:
    def __init__(self, model: FakeModel) -> None:
        self.models: dict[int, Any] = {7: model}
        self.told: list[Any] = []
        self.links: list[FrontendLink] = []

    async def query(self, name: str, arguments: Sequence[Any]) -> Any:
        if name == "rejected":
            raise InvalidRequest("no such thing")
        if name == "broken":
            raise KeyError(name)
        return [name, *arguments]

    def finished(self, labels: tuple[str, str, str, int, str], seconds: Sequence[float]) -> None:
        self.told.append((labels, seconds))

    def joined(self, link: FrontendLink) -> None:
        self.links.append(link)

    def left(self, link: FrontendLink) -> None:
        self.links.remove(link)


class FakeFollower:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def catalog(self, link: EngineLink, snapshot: Snapshot) -> None:
        self.heard.append(snapshot)

    def health(self, dead: Sequence[str], unready: Sequence[str]) -> None:
        self.heard.append((dead, unready))

    def tell(self, link: EngineLink) -> None:
        self.heard.append("tell")


class World:
    def __init__(self, engine: EngineLink, frontend: FrontendLink, host: FakeHost, follower: FakeFollower) -> None:
        self.engine = engine
        self.frontend = frontend
        self.host = host
        self.follower = follower
        self.model: FakeModel = host.models[7]
        self.remote = RemoteModel(engine, 7, "m", 1, sizes=BatchSizes((1, 2)), signatures=SIGNATURES)

    def ask(self, value: float = 1.0, word: bytes = b"w", outputs: tuple[str, ...] = ("y",), rows: int = 1) -> Any:
        """The task of a caller who waits for the answer."""
        inputs = {"x": np.full((rows, 2), value, np.float32), "text": np.array([word] * rows, object)}
        request = InferenceRequest(inputs, "serving_default", outputs, 99.5, 1)
        return asyncio.ensure_future(self.remote.infer(request))

    async def submitted(self, count: int) -> list[Submitted]:
        await until(lambda: len(self.model.submitted) >= count)
        return self.model.submitted


@asynccontextmanager
async def world(arena_bytes: int = ARENA_BYTES) -> AsyncIterator[World]:
    loop = asyncio.get_running_loop()
    files = [create_memory(arena_bytes) for _ in range(2)]
    host, follower = FakeHost(FakeModel()), FakeFollower()
    frontend = FrontendLink(host, ReadingArena(files[0]), WritingArena(files[1]))
    engine = EngineLink(follower, WritingArena(files[0]), ReadingArena(files[1]))
    for file in files:
        os.close(file)
    ours, theirs = socket.socketpair()
    for each in (ours, theirs):
        each.setblocking(False)
    await loop.connect_accepted_socket(lambda: frontend, ours)
    await loop.connect_accepted_socket(lambda: engine, theirs)
    made = World(engine, frontend, host, follower)
    try:
        yield made
    finally:
        engine.close()
        await engine.closed
        await until(lambda: not host.links)


async def rejection(asked: Any) -> ServingError:
    try:
        answer = await asked
    except ServingError as error:
        return error
    raise AssertionError(f"It was answered: {answer}")
