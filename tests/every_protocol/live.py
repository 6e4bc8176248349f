"""A whole server in this process: the real application on a loopback socket, gRPC on a port of its own."""

from __future__ import annotations

import asyncio
import re
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np

from app.batching.policy import SelfTuning
from app.config.settings import Settings
from app.core.inference import InferenceRequest
from app.frontends.engine.engine_listener import EngineListener
from app.frontends.frontend.frontend_server import FrontendServer
from app.model import Model
from app.server import engine
from app.server.http_app import HttpApp
from app.server.http_server import http2_of
from app.server.server import Server
from app.transports.http.connections.connection_limits import ConnectionLimits, Connections
from app.transports.http.connections.http_handshakes import HttpHandshakes
from app.transports.http1.uvicorn_adapter import HttpPort
from app.transports.ports import bind_port, share_port
from app.transports.tls.served_tls import ServedTls
from bench.simulator.peer_policies import WorkConserving
from tests.every_protocol.http1_transport import Http1Transport
from tests.every_protocol.models import ContractModel
from tests.support.waiting import HANG_S, until
from tests.transports.http1.quiet_server import QuietServer
from tests.transports.rest_http2.http2_transport import Http2Transport

#: Each creator of a Live registers it in app.runtime.
RUNTIME = ("every_protocol", "tests.every_protocol.models:ContractRuntime")

MAX_ROWS = 32
MAX_BYTES = 16 * 1024


Face = Server | FrontendServer


class Live:
    """The running server, clients of both its ports, and the model `m` behind it.

    `http2` is as `http`, with prior knowledge of HTTP/2.
    `faces`: what answers callers, the server or its frontends.
    """

    def __init__(
        self,
        server: Server,
        app: HttpApp,
        https: Sequence[httpx.AsyncClient],
        channel: grpc.aio.Channel,
        faces: Sequence[Face],
    ) -> None:
        self.server = server
        self.faces = faces
        self.services = faces[0].grpc.services if faces[0].grpc is not None else ()
        self.app = app
        self.http, self.http2 = https
        self.channel = channel

    @property
    def served(self) -> Model:
        return self.server.repository.resolve("m")

    @property
    def model(self) -> ContractModel:
        loaded = self.served._placement.loaded
        assert isinstance(loaded, ContractModel)
        return loaded

    def waiting_rows(self) -> int:
        return self.server.engine.queue_rows()

    async def gone(self) -> float:
        """How many clients disconnected before their answer, by the server's counts."""
        page = (await self.server.metrics()).body
        left = re.findall(r'^ferry_requests_total{code="(?:499|CANCELLED)".*} (.*)$', page.decode(), re.MULTILINE)
        return sum(map(float, left))

    async def rows_wait(self, rows: int) -> None:
        await until(lambda: self.waiting_rows() == rows)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """The device computes an extra request until the block ends; all others wait."""
        model = self.model
        model.hold()
        extra = InferenceRequest({"features": np.zeros((1, 2), np.float32)})
        blocking = asyncio.create_task(self.served.infer(extra))
        try:
            assert await asyncio.to_thread(model.waits.wait, HANG_S)
            yield
        finally:
            model.release()
            await blocking

    async def next_call(self) -> None:
        """While held: the device goes on to what waits, and is held there."""
        self.model.permit()
        assert await asyncio.to_thread(self.model.waits.wait, HANG_S)


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
        "model_control": "explicit",
        "runtime": RUNTIME[0],
        "warm_up": False,
        "poll_interval_s": 0,
        "settle_s": 0,
        "max_inline_ms": 0,  # models that are held must not hold the event loop
        "admission": False,  # calls that are held look slow, and the next ones would be rejected
        # What is proven of a model, and who is answered in time, must not follow from the machine's speed.
        "load_budget_s": HANG_S,
        "drain_grace_s": 0,  # connections of grpc.aio get no older than that, and end while a message is rejected
        "request_timeout_ms": 1e3 * HANG_S,
        "max_batch_size": MAX_ROWS,
        "max_queue_size": MAX_ROWS,
        "max_body_bytes": MAX_BYTES,
        "grpc_max_message_bytes": MAX_BYTES,
    }
    return Settings(**{**values, **more})


@contextmanager
def all_waiting_rows() -> Iterator[None]:
    """The batchers of servers that start in this context take all rows that wait.

    So the sharing of calls does not follow from measured costs, which the machine's load decides.
    """
    module: Any = engine
    module.SelfTuning = WorkConserving
    try:
        yield
    finally:
        module.SelfTuning = SelfTuning


@asynccontextmanager
async def live(folder: Path, tls: ServedTls | None = None, **more: Any) -> AsyncIterator[Live]:
    """With `frontends`, that many of them answer HTTP and gRPC, over real sockets, though all in this process.

    `tls`: of HTTP; then its client is of no use.
    """
    async with AsyncExitStack() as stack:
        stack.enter_context(all_waiting_rows())
        server = Server(settings(folder, **more))
        await server.start()
        stack.push_async_callback(server.stop)
        assert server._starting is not None
        await server._starting
        await until(lambda: all(status.error_message for status in server.repository.statuses("broken")))
        faces: Sequence[Face] = [server]
        if server.settings.frontends:
            faces = await stack.enter_async_context(frontends_of(server))
        port, app = await stack.enter_async_context(_http(faces, tls))
        https = [
            await stack.enter_async_context(
                httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=HANG_S, transport=transport)
            )
            for transport in (Http1Transport(port), Http2Transport(port))
        ]
        servers = faces[0].grpc
        assert servers is not None
        grpc_port = port if server.settings.single_port else servers.port
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{grpc_port}"))
        yield Live(server, app, https, channel, faces)


@asynccontextmanager
async def _http(faces: Sequence[Face], tls: ServedTls | None) -> AsyncIterator[tuple[int, HttpApp]]:
    """All of them on one port, as they are in processes of their own; the port and the first one's application."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        apps = [HttpApp(face) for face in faces]
        # Between two tests the event loop stands still: only the client closes what is idle meanwhile.
        limits = ConnectionLimits(keep_alive_s=2 * HANG_S)
        fronts = []
        for app in apps:
            connections = Connections(limits, time.monotonic)
            handshakes = None if tls is None else HttpHandshakes(connections, tls)
            port = HttpPort([listener.dup()], app.fast_path, http2_of(app, limits), handshakes)
            fronts.append(QuietServer(app, connections, port))
        serving = [asyncio.create_task(front.serve([])) for front in fronts]
        await until(lambda: all(front.started for front in fronts))
        try:
            yield listener.getsockname()[1], apps[0]
        finally:
            for front in fronts:
                front.should_exit = True
            await asyncio.gather(*serving)


@asynccontextmanager
async def frontends_of(server: Server) -> AsyncIterator[Sequence[FrontendServer]]:
    """Frontends before this server, each as it is in a process of its own."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/engine")
        listener.listen()
        frontend_listener = EngineListener(server)
        frontend_listener.open(listener)
        with bind_port(socket.AF_INET, (server.settings.host, 0)) as held:
            frontends = [
                FrontendServer(server.settings, Path(folder) / "engine", shared=[share_port(held)])
                for _ in range(server.settings.frontends)
            ]
        for frontend in frontends:
            await frontend.start()
            await frontend.engine.wait_until_connected()
        try:
            yield frontends
        finally:
            for frontend in frontends:
                await frontend.stop()
            await frontend_listener.close(HANG_S)
