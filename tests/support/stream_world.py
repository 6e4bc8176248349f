"""Streams to a real model on a fake device, in fake time, and a client whose every move is the test's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from app.batching.batcher import Batcher
from app.batching.state import BatcherOptions
from app.core.batch_sizes import BatchSizes
from app.core.events import BatchExecuted, Event, RequestFinished
from app.core.inference import InferenceRequest
from app.model import Model
from app.placement import RequestPlacement
from app.protocols.tensorflow_serving.rest import TensorFlowRest
from app.transports.http.replies import HttpOptions
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeDevice, FakeLoadedModel, fake_time
from tests.support.protocol_fakes import FakeRepository, scope

PATH = "/v1/models/m:predictStream"
COMPUTE_S = 1.0
LARGEST = 4
MAX_BYTES = 1000
TIMEOUT_S = 30.0


class World:
    """Serves model `m`, which doubles; `loaded` is its version 1."""

    def __init__(self, max_queue_rows: int = 1000) -> None:
        self.events: list[Event] = []
        self.batcher = Batcher(
            [FakeDevice(COMPUTE_S)],
            WorkConserving(),
            BatcherOptions(max_queue_rows, admission=False),
            self.events.append,
            fake_time,
        )
        self.repository = FakeRepository()
        self.model = self.add(1)
        self.loaded = cast(FakeLoadedModel, self.model._placement.loaded)
        self.draining = asyncio.Event()
        limits = HttpOptions(MAX_BYTES, 1000 * TIMEOUT_S)
        repository: Any = self.repository
        self.app = TensorFlowRest(repository, self.events.append, limits, fake_time, self.draining)

    def add(self, version: int) -> Model:
        sizes = BatchSizes.powers_of_two(LARGEST)
        model = Model(RequestPlacement("m", version, FakeLoadedModel(), sizes), self.batcher)
        self.repository.models["m", version] = cast(Any, model)
        return model

    def connect(self, path: str = PATH, method: str = "POST", **headers: str) -> Peer:
        return Peer(self.app, scope(method, path, {name.replace("_", "-"): text for name, text in headers.items()}))

    async def ask(self, value: float) -> None:
        """What an interactive client asks."""
        await self.model.infer(InferenceRequest({"x": np.full((1, 2), value, np.float32)}))

    def drain(self) -> None:
        self.draining.set()
        self.batcher.begin_drain()

    @property
    def computed(self) -> int:
        """Lines that the model was called with."""
        return sum(event.rows for event in self.events if isinstance(event, BatchExecuted))

    @property
    def finished(self) -> list[RequestFinished]:
        return [event for event in self.events if isinstance(event, RequestFinished)]


class Peer:
    """A client. `replies` are the lines that it has read; unless it reads, whoever sends to it waits."""

    def __init__(self, app: TensorFlowRest, head: dict[str, Any]) -> None:
        self.status = 0
        self.headers: Mapping[bytes, bytes] = {}
        self.body = b""
        self.heard = 0
        self.reads = asyncio.Event()
        self.reads.set()
        self._to_server: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._changed = asyncio.Event()
        self._call = asyncio.create_task(app(head, self._receive, self._send))

    @property
    def replies(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]

    def say(self, *lines: object) -> None:
        """Lines in one piece; bytes go as they are."""
        texts = [line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines]
        self.send_bytes(b"".join(texts))

    def send_bytes(self, body: bytes) -> None:
        self._to_server.put_nowait({"type": "http.request", "body": body, "more_body": True})

    def stop(self) -> None:
        """There is no more to say."""
        self._to_server.put_nowait({"type": "http.request", "body": b"", "more_body": False})

    def hang_up(self) -> None:
        self._to_server.put_nowait({"type": "http.disconnect"})

    async def replied(self, lines: int) -> list[Any]:
        """Returns when there are so many."""
        while len(self.body.splitlines()) < lines:
            self._changed.clear()
            await self._changed.wait()
        return self.replies

    async def end(self) -> list[Any]:
        """Returns when the server is through."""
        await self._call
        return self.replies

    async def _receive(self) -> dict[str, Any]:
        message = await self._to_server.get()
        self.heard += 1
        return message

    async def _send(self, message: Any) -> None:
        await self.reads.wait()
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
        self.body += message.get("body", b"")
        self._changed.set()


def doubled(*values: float) -> list[Any]:
    return [{"prediction": [2 * value] * 2} for value in values]
