"""Everything counted comes back: whatever clients do on connections of HTTP/1.1 and HTTP/2, legal or not, once all have
left every counter and every registry of the server is as it was, and no timer is left.

The model knows nothing: `ledger` (ledger.py) walks the server's objects, before and after.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from app.core.burst import Burst
from app.transports.grpc.application import GrpcApplication
from app.transports.grpc.calls import GrpcCalls
from app.transports.grpc.services import Service
from app.transports.http.connections.connection_limits import ConnectionLimits
from app.transports.http2 import frames
from app.transports.http2.frames import DATA, END_HEADERS, END_STREAM, HEADERS, PADDED, PREFACE, ErrorCode
from app.transports.http2.hpack import encode_fields
from app.transports.http2.limits import Http2Limits
from app.transports.http2.protocol import Http2Protocol
from app.transports.http2.times import Times
from app.transports.memory.body_room import BodyRoom
from app.transports.memory.client_memory import ClientMemory
from app.transports.rest_http2.application import GrpcOnRestPort
from tests.laws.transports.ledger import ledger, timers
from tests.support.fakes import fake_time, run_in_fake_time
from tests.transports.grpc.incoming.test_held_calls import HANDLED, SERVICE, STREAM, TASKLESS, head, message
from tests.transports.grpc.incoming.test_lifecycles import Method, answered, handled
from tests.transports.http1.connection_world import (
    CHUNKS,
    INFER,
    MAX_BODY,
    PREDICT,
    ROW,
    V2_ROW,
    Transport,
    World,
    request,
)

LIMITS = ConnectionLimits(
    keep_alive_s=5.0, arrival_timeout_s=5.0, max_body_bytes=MAX_BODY, max_connections=6, max_connections_per_address=4
)
BODY = b'{"instances": [[1.0, 2.0]]}'
IDENTITY = {"Content-Encoding": "identity"}  # by ASGI


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


class Client:
    """What one does on its connection, by name."""

    def __init__(self, world: World, draw: Random) -> None:
        self._draw = draw
        self.transport: Transport
        address = draw.choice(["127.0.0.1", "10.0.0.1"])
        _, self.transport = world.connect(address)
        self._number = -1
        self._half_closed = False

    def send(self, content: bytes) -> None:
        if not (self.transport.closed or self._half_closed):
            self.transport.hear(content)

    # --- HTTP/1.1 ---

    def whole(self) -> None:
        path, body = self._draw.choice([(PREDICT, ROW), (INFER, V2_ROW), (PREDICT, {"instances": 1})])
        self.send(request(path, body, headers=self._draw.choice([{}, IDENTITY])) * self._draw.choice([1, 1, 3]))

    def broken(self) -> None:
        content = request(headers=self._draw.choice([{}, IDENTITY]))
        self.send(content[: self._draw.randrange(len(content))])

    def chunks(self) -> None:
        """A long body in many pieces, whole or not."""
        self.send(request(headers={**CHUNKS, **self._draw.choice([{}, IDENTITY])}, body=b""))
        for _ in range(self._draw.randint(1, 5)):
            self.send(chunk(b" " * self._draw.choice([1, 500, 30_000, 90_000])))
        if self._draw.random() < 0.6:
            self.send(chunk(BODY) + b"0\r\n\r\n")

    def long(self) -> None:
        size = self._draw.choice([1000, 50_000, MAX_BODY, 2 * MAX_BODY])
        self.send(request(body=b" " * size + BODY)[: self._draw.choice([-1, None])])

    # --- HTTP/2 ---

    def greet(self) -> None:
        self.send(PREFACE + frames.settings([(frames.INITIAL_WINDOW_SIZE, self._draw.choice([0, 100, 65_535]))]))

    def open(self) -> None:
        self._number += 2
        path = self._draw.choice([PREDICT, PREDICT, "/v1/models/m", "/v1/nowhere"]).encode()
        fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"x")]
        fields += self._draw.choice([[], [(b"content-encoding", b"identity")], [(b"x-long", b"y" * 9000)]])
        self.send(
            frames.frame(
                HEADERS, END_HEADERS | self._draw.choice([0, 0, END_STREAM]), self._number, encode_fields(fields)
            )
        )

    def call(self) -> None:
        """Of gRPC, with a message, a part of one, or several."""
        self._number += 2
        timeout = self._draw.choice([(), ((b"grpc-timeout", b"3m"),)])
        self.send(head(self._number, self._draw.choice([TASKLESS, HANDLED, STREAM]), *timeout))
        for _ in range(self._draw.randint(0, 3)):
            content = self._draw.choice(
                [message(0), message(1), message(9000), message(9000)[:5000], message(1, flag=1)]
            )
            self.send(frames.frame(DATA, self._draw.choice([0, 0, END_STREAM]), self._number, content))

    def data(self) -> None:
        content, flags = self._draw.choice([BODY, b" " * 9000]), self._draw.choice([0, END_STREAM])
        if self._draw.random() < 0.5:
            content, flags = bytes([200]) + content + bytes(200), flags | PADDED
        self.send(frames.frame(DATA, flags, self._any(), content))

    def reset(self) -> None:
        self.send(frames.rst_stream(self._any(), ErrorCode.CANCEL))

    def window(self) -> None:
        self.send(frames.window_update(self._draw.choice([0, self._any()]), self._draw.choice([0, 10, 70_000])))

    def _any(self) -> int:
        return max(1, self._number - 2 * self._draw.randint(0, 2))

    # --- reading and leaving ---

    def stop_reading(self) -> None:
        if not self.transport.closed:
            self.transport.unread = 50_000
            self.transport.get_protocol().pause_writing()  # type: ignore[attr-defined]  # it is asyncio.Protocol

    def read(self) -> None:
        self.transport.unread = 0
        if not self.transport.closed:
            self.transport.get_protocol().resume_writing()  # type: ignore[attr-defined]  # likewise

    def end_streams(self) -> None:
        protocol = self.transport.get_protocol()
        if isinstance(protocol, Http2Protocol):
            for number in [*protocol.connection.streams]:
                self.send(frames.rst_stream(number, ErrorCode.CANCEL))

    def held(self) -> int:
        """Bytes of messages and bodies that its connection of HTTP/2 counts."""
        protocol = self.transport.get_protocol()
        return protocol._held if isinstance(protocol, Http2Protocol) else 0

    def leave(self) -> None:
        """Both sides of the connection, or its own at first."""
        if self.transport.closed:
            return
        if not self._half_closed and self._draw.random() < 0.3:
            self._half_closed = True
            if self.transport.get_protocol().eof_received():  # type: ignore[attr-defined]  # likewise
                return
        self.transport.close()


HTTP1 = ["whole", "whole", "broken", "chunks", "long", "stop_reading", "read", "leave"]
HTTP2 = ["open", "open", "call", "call", "data", "data", "reset", "window", "stop_reading", "read", "leave"]


async def live(world: World, draw: Random, steps: int) -> None:
    """Clients come, act in turn, and leave."""
    clients: list[tuple[Client, list[str]]] = []
    for _ in range(steps):
        if not clients or draw.random() < 0.15:
            client = Client(world, draw)
            acts = draw.choice([HTTP1, HTTP2])
            if acts is HTTP2:
                client.greet()
            clients.append((client, acts))
        else:
            client, acts = draw.choice(clients[-6:])
            getattr(client, draw.choice(acts))()
        await asyncio.sleep(draw.choice([0, 0, 0, 0.01, 0.5, 2.0]))
    for client, _ in clients:
        client.end_streams()
    await asyncio.sleep(0.1)
    for client, _ in clients:
        assert client.held() == 0, "no stream is open"
    for client, _ in clients:
        client.transport.unread = 0
        client.leave()
        client.transport.close()
    await asyncio.sleep(3.5)
    assert timers() == [], "what is accepted is answered, and nobody is waited for"
    await asyncio.sleep(100)


def grpc_of(memory: ClientMemory) -> GrpcOnRestPort:
    """Calls without a task, in one, and in streams."""
    calls = GrpcCalls("test", lambda _: None, 30_000.0, memory=memory)
    answers: Any = {"ModelInfer": handled, "ServerLive": handled, "ModelStreamInfer": answered}
    taskless: Any = {"ModelInfer": Method()}
    application = GrpcApplication(
        [Service(calls, SERVICE, answers, taskless=taskless)], 2**20, 2**14, Burst(), fake_time
    )
    return GrpcOnRestPort(application, Http2Limits(), Times(slow_s=5.0, handshake_s=5.0, idle_s=5.0))


def counted(world: World) -> dict[str, int]:
    return ledger(world._connect, world.batcher) | {"tasks": len(asyncio.all_tasks())}


@pytest.mark.parametrize("callers", ["", "address"])
@pytest.mark.parametrize("seed", range(8))
def test_when_all_have_left_everything_is_as_it_was(seed: int, callers: str) -> None:
    async def main() -> None:
        memory = ClientMemory(1_000_000, room=BodyRoom(lambda: 50.0 * 2**20))
        world = World(True, memory=memory, limits=LIMITS, callers=callers, grpc=grpc_of(memory))
        world.transport.close()
        draw = Random(seed)  # noqa: S311 - the same in each run
        await live(world, draw, 60)  # what is made at the first time
        before: Any = counted(world)
        await live(world, draw, 100)
        after = counted(world)
        changed = {name: (before.get(name, 0), count) for name, count in after.items() if before.get(name, 0) != count}
        assert changed == {}
        assert (memory.bodies, memory.unread, memory.room.reserved, timers()) == (0, 0, 0, [])

    run_in_fake_time(main())
