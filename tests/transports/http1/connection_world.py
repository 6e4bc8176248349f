"""Connections to a server of one real model on a fake device, and what their clients send and read."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState

from app.access.access import Access
from app.batching.batcher import Batcher
from app.batching.policy import BatchingOptions
from app.batching.state import BatcherOptions
from app.core.batch_sizes import BatchSizes
from app.core.burst import Burst
from app.core.events import Event, RequestFinished, RequestsFinished
from app.model import Model
from app.placement import RequestPlacement
from app.protocols.open_inference.api import OpenInference
from app.protocols.open_inference.rest import OpenInferenceRest
from app.protocols.tensorflow_serving.rest import TensorFlowRest
from app.transports.http.asgi import Application
from app.transports.http.connections.accepting_server import AcceptingServer
from app.transports.http.connections.connection_limits import ConnectionLimits, Connections
from app.transports.http.cors import EXPOSED_TO_ANY_ORIGIN, AllowAnyOrigin
from app.transports.http.direct.fast_path import FastPath
from app.transports.http.http_api import HttpApi
from app.transports.http.probes import Probes
from app.transports.http.replies import HttpOptions
from app.transports.http1.http1_connection import Http1Connection
from app.transports.http1.known_heads import KnownHeads
from app.transports.memory.client_memory import ClientMemory
from app.transports.request_caller import CallerRule
from app.transports.rest_http2.application import GrpcOnRestPort
from app.transports.rest_http2.begin import RestHttp2
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeDevice, FakeLoadedModel, fake_time, run_in_fake_time
from tests.support.open_inference_world import FakeHealth
from tests.support.protocol_fakes import FakeRepository
from tests.support.waiting import until

MAX_BODY = 200_000
TIMEOUT_MS = 10_000.0
COMPUTE_S = 1.0

LIMITS = ConnectionLimits(keep_alive_s=5.0)

PREDICT = "/v1/models/m:predict"
INFER = "/v2/models/m/infer"
ROW = {"instances": [[1.0, 2.0]]}
V2_ROW = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}]}

#: Headers of a body in chunks.
CHUNKS = {"Content-Length": "", "Transfer-Encoding": "chunked"}


class Transport(asyncio.Transport):
    """What a client would read; `paused` as long as the client does not read."""

    def __init__(self, protocol: asyncio.Protocol, address: str = "127.0.0.1") -> None:
        super().__init__({"sockname": ("127.0.0.1", 80), "peername": (address, 1234)})
        self._protocol: Any = protocol
        self.out = b""
        self.writes = 0
        self.closed = self.aborted = False
        self.reading = True
        self.unread = 0  # bytes that the socket does not take
        self.connection: socket.socket | None = None

    def get_write_buffer_size(self) -> int:
        return self.unread

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The tests say when it is full."""

    def write(self, data: Any) -> None:
        assert not self.closed
        self.writes += 1
        self.out += bytes(data)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        """The client closes its side, too, unless it `stays_open`."""
        if self.connection is None:
            self.close()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.connection if name == "socket" else super().get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def hear(self, data: bytes) -> None:
        """Gives the data to whatever protocol it has now."""
        self._protocol.data_received(data)

    def abort(self) -> None:
        self.aborted = True
        self.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


@contextmanager
def stays_open(transport: Transport) -> Iterator[socket.socket]:
    """Gives the transport a real connection, whose client does not close; yields the client's side."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        transport.connection, _ = listener.accept()
    with client, transport.connection:
        for each in (client, transport.connection):
            each.setblocking(False)
        yield client


class World:
    """Connections to a server of one real model on a fake device; `connection` is the first of them.

    Args:
        inline_s: calls that take less are made on the event loop.
        timed: what calls take is known from the beginning.
        calls_s: calls take so long, and this is known.
        application: answers what takes no fast path, instead of the protocols.
        grpc: answers calls of gRPC on the same connections.
        access: who may send what.
        probes: answered by connections before all else.
    """

    def __init__(
        self,
        direct: bool,
        cors: bool = False,
        inline_s: float = 0.0,
        *,
        admission: bool = False,
        timed: bool = True,
        calls_s: float = 0.0,
        callers: str = "",
        limits: ConnectionLimits = LIMITS,
        application: Application | None = None,
        memory: ClientMemory | None = None,
        grpc: GrpcOnRestPort | None = None,
        access: Access | None = None,
        probes: Probes | None = None,
    ) -> None:
        self.events: list[Event] = []
        self.loaded = FakeLoadedModel()
        self.device = FakeDevice(calls_s or COMPUTE_S)
        burst = Burst(fake_time)
        self.batcher = Batcher(
            [self.device],
            WorkConserving(),
            BatcherOptions(1000, max_inline_s=inline_s, admission=admission),
            self.events.append,
            fake_time,
            burst=burst,
        )
        warm_up = (
            {"serving_default": {32: calls_s or COMPUTE_S}} if calls_s or (inline_s and timed) else {}
        )  # so calls of all sizes are known to be quick
        placement = RequestPlacement("m", 1, self.loaded, BatchSizes.powers_of_two(32), costs=warm_up)
        self.model = Model(placement, self.batcher)
        self.repository = repository = cast(Any, FakeRepository(cast(Any, self.model)))
        memory = memory or ClientMemory()
        http_limits = HttpOptions(MAX_BODY, TIMEOUT_MS, CallerRule.of(callers), memory=memory)
        statistics: Any = None
        served = OpenInference(repository, statistics, FakeHealth(), batching=lambda _: BatchingOptions())
        self.protocols: dict[str, HttpApi] = {
            "v1": TensorFlowRest(repository, self.events.append, http_limits, fake_time),
            "v2": OpenInferenceRest(served, self.events.append, http_limits, fake_time),
        }
        self._cors = cors
        headers = EXPOSED_TO_ANY_ORIGIN if cors else []
        fast_path = FastPath(self._find, headers, fake_time, burst=burst, memory=memory, access=access, probes=probes)
        application = application or self._application
        config = uvicorn.Config(cast(Any, application), http="httptools", log_config=None, interface="asgi3")
        config.load()
        self.state = ServerState()
        self.state.default_headers = [(b"date", b"today")]
        self._connect: Callable[[], Any]
        if direct:
            http2 = RestHttp2(fast_path, limits, grpc)
            connections = Connections(limits, fast_path.clock)
            server = AcceptingServer(connections, http2, application, cast(Any, self.state), {})
            self._connect = partial(Http1Connection, KnownHeads(fast_path), server)
        else:
            kind: Any = config.http_protocol_class
            self._connect = partial(kind, config=config, server_state=self.state, app_state={})
        self.connection, self.transport = self.connect()

    def connect(self, address: str = "127.0.0.1") -> tuple[Any, Transport]:
        connection = self._connect()
        transport = Transport(connection, address)
        connection.connection_made(transport)
        return connection, transport

    def _find(self, path: str) -> HttpApi | None:
        return self.protocols.get(path.split("/", 2)[1])

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        protocol: Any = self._find(scope["path"])
        await (AllowAnyOrigin(protocol) if self._cors else protocol)(scope, receive, send)

    async def hear(self, *chunks: bytes | float) -> None:
        """Bytes of the client as they come, and seconds between them."""
        for chunk in chunks:
            if isinstance(chunk, float):
                await asyncio.sleep(chunk)
            elif not self.transport.closed:
                self.connection.data_received(chunk)

    @property
    def finished(self) -> list[RequestFinished]:
        """Each request, those that were answered together too."""
        found: list[RequestFinished] = []
        for event in self.events:
            if isinstance(event, RequestFinished):
                found.append(event)
            elif isinstance(event, RequestsFinished):
                found += [RequestFinished(*event[:5], seconds) for seconds in event.seconds]
        return found

    def told(self) -> list[tuple[object, ...]]:
        return [(event.protocol, event.code, event.model, event.version, event.signature) for event in self.finished]

    def replies(self, transport: Transport | None = None) -> list[tuple[int, dict[str, str], bytes]]:
        """Status, headers and body of each reply."""
        out = (transport or self.transport).out
        rest, found = out.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b""), []
        while rest:
            head, _, rest = rest.partition(b"\r\n\r\n")
            status, *lines = head.decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            assert len(headers) == len(lines)
            length = int(headers["content-length"])
            found.append((int(status.split()[1]), headers, rest[:length]))
            rest = rest[length:]
        return found


def request(
    path: str = PREDICT,
    body: Any = ROW,
    headers: dict[str, str] | None = None,
    method: str = "POST",
    version: str = "1.1",
) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"Host": "here", "Content-Length": str(len(content)), **(headers or {})}
    lines = [f"{method} {path} HTTP/{version}", *(f"{name}: {value}" for name, value in given.items() if value)]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def served(loop: Any, client: Callable[[World, int], Awaitable[None]]) -> None:
    """Runs a client of a world that listens on a port, on a new event loop that `loop` makes."""

    async def main() -> None:
        world = World(True)
        server = await asyncio.get_running_loop().create_server(world._connect, "127.0.0.1", 0)
        async with server:
            await client(world, server.sockets[0].getsockname()[1])
        for connection in list(world.state.connections):
            connection.transport.abort()
        await until(lambda: not world.state.connections)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


def played(direct: bool, chunks: Sequence[bytes | float], cors: bool = False) -> World:
    async def main() -> World:
        world = World(direct, cors)
        await world.hear(*chunks)
        await asyncio.sleep(3.5 * COMPUTE_S)
        return world

    return run_in_fake_time(main())
