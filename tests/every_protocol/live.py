"""A whole server in this process: the real application on a loopback socket, gRPC on a port of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import uvicorn

from app.http_app import HttpApp, create_app
from app.inference import InferenceRequest
from app.model import Model
from app.server import Server
from app.settings import Settings
from tests.every_protocol.models import ContractModel

#: Registered in app.runtime by whoever makes a Live.
RUNTIME = ("every_protocol", "tests.every_protocol.models:ContractRuntime")

MAX_ROWS = 32
MAX_BYTES = 16 * 1024


class _Uvicorn(uvicorn.Server):
    """Leaves the signals to pytest."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Live:
    """The running server, clients of both its ports, and the model `m` behind it."""

    def __init__(self, server: Server, app: HttpApp, http: httpx.AsyncClient, channel: grpc.aio.Channel) -> None:
        self.server = server
        self.app = app
        self.http = http
        self.channel = channel

    @property
    def served(self) -> Model:
        return self.server.repository.resolve("m")

    @property
    def model(self) -> ContractModel:
        loaded = self.served._loaded
        assert isinstance(loaded, ContractModel)
        return loaded

    def waiting_rows(self) -> int:
        return self.server.engine.queue_rows()

    async def rows_wait(self, rows: int) -> None:
        await until(lambda: self.waiting_rows() == rows)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """The device works on a request of nobody's until the block ends: everything else waits."""
        model = self.model
        model.hold()
        nobodys = InferenceRequest({"features": np.zeros((1, 2), np.float32)})
        blocking = asyncio.create_task(self.served.infer(nobodys))
        try:
            assert await asyncio.to_thread(model.waits.wait, 30)
            yield
        finally:
            model.release()
            await blocking

    async def next_call(self) -> None:
        """While held: the device goes on to what waits, and is held there."""
        self.model.permit()
        assert await asyncio.to_thread(self.model.waits.wait, 30)


async def until(condition: Callable[[], bool]) -> None:
    """Lets everything else run until it holds."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - the other end is a socket, which sets no event
            await asyncio.sleep(0)


def settings(folder: Path, **more: Any) -> Settings:
    for name in ("m", "broken"):
        version = folder / name / "1"
        version.mkdir(parents=True, exist_ok=True)
        (version / "saved_model.pb").touch()
    values: dict[str, Any] = {
        "host": "127.0.0.1",
        "rest_port": 0,
        "grpc_port": 0,
        "models": folder,
        "default_model": "m",
        "runtime": RUNTIME[0],
        "warm_up": False,
        "poll_interval_s": 0,
        "max_batch_size": MAX_ROWS,
        "max_queue_size": MAX_ROWS,
        "max_body_bytes": MAX_BYTES,
        "grpc_max_message_bytes": MAX_BYTES,
    }
    return Settings(**{**values, **more})


@asynccontextmanager
async def live(folder: Path, **more: Any) -> AsyncIterator[Live]:
    server = Server(settings(folder, **more))
    await server.start()
    assert server._starting is not None
    await server._starting
    await until(lambda: all(status.error_message for status in server.repository.statuses("broken")))
    app = create_app(server)
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, access_log=False, lifespan="off", ws="none")
    front = _Uvicorn(config)
    serving = asyncio.create_task(front.serve())
    await until(lambda: front.started)
    port = front.servers[0].sockets[0].getsockname()[1]
    try:
        async with (
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as http,
            grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc.port}") as channel,
        ):
            yield Live(server, app, http, channel)
    finally:
        front.should_exit = True
        await serving
        await server.stop()
