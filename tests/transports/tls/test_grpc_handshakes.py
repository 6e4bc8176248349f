"""Handshakes of TLS that never end: they count as connections, give way to new ones, and have a time-out."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvloop

from app.core.events import ConnectionsRejected, Event
from app.transports.grpc.calls import GrpcCall, GrpcCalls
from app.transports.grpc.options import GrpcOptions
from app.transports.grpc.server import GrpcServer
from app.transports.grpc.services import Service
from app.transports.http2.frames import PREFACE, ErrorCode, goaway, settings
from app.transports.tls.served_tls import ServedTls
from app.transports.tls.texts import TlsTexts
from tests.support.waiting import HANG_S, until

SERVICE = "inference.GRPCInferenceService"
MOST = 4

Certificate = tuple[bytes, bytes]

RUNNERS = [asyncio.run, uvloop.run]


class World:
    def __init__(self, certificate: Certificate, handshake_ms: int, unix_socket: str = "") -> None:
        async def answer(_: Any, __: GrpcCall) -> bytes:
            return b"alive"

        service = Service(GrpcCalls("test", lambda _: None, 1e3 * HANG_S), SERVICE, {"ServerLive": answer})
        limits = [
            ("grpc.max_allowed_incoming_connections", MOST),
            ("grpc.server_handshake_timeout_ms", handshake_ms),
        ]
        key, chain = certificate
        tls = ServedTls(lambda: TlsTexts(chain, key))
        self.failed: list[Event] = []
        tls.listener = self.failed.append
        options = GrpcOptions("127.0.0.1", 0, arguments=limits, tls=tls, unix_socket=unix_socket)
        self.server = GrpcServer(options, [service], lambda: True)
        self.credentials = grpc.ssl_channel_credentials(chain)

    async def silent(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.server.port)

    @asynccontextmanager
    async def channel(self, target: str = "") -> AsyncIterator[Any]:
        name = [("grpc.ssl_target_name_override", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
        target = target or f"127.0.0.1:{self.server.port}"
        async with grpc.aio.secure_channel(target, self.credentials, name) as channel:
            yield channel.unary_unary(f"/{SERVICE}/ServerLive")

    async def honest(self, target: str = "") -> Any:
        async with self.channel(target) as ask:
            return await ask(b"", wait_for_ready=True, timeout=HANG_S)


def played(runner: Any, world: World, scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        await world.server.start()
        try:
            await scenario(world)
        finally:
            await world.server.stop(0)

    runner(main())


@pytest.mark.parametrize("runner", RUNNERS)
def test_handshakes_that_never_end_count_as_connections_and_give_way(runner: Any, certificate: Certificate) -> None:
    async def scenario(world: World) -> None:
        server: Any = world.server
        held = [await world.silent() for _ in range(MOST)]
        _, writer = held[0]
        writer.write(b"\x16\x03\x01")  # a record has begun (RFC 8446, section 5.1)
        held += [await world.silent() for _ in range(3 * MOST)]
        for reader, _ in held[: 3 * MOST]:
            with suppress(ConnectionError):
                assert await reader.read() == b""
        assert len(server._connections.arriving) == MOST
        assert await world.honest() == b"alive"
        for _, each in held:
            each.close()


@pytest.mark.parametrize("sent", [b"", PREFACE + settings(())], ids=["nothing", "preface and settings"])
@pytest.mark.parametrize("runner", RUNNERS)
def test_who_asks_for_nothing_after_the_handshake_gives_way_too(
    runner: Any, sent: bytes, certificate: Certificate
) -> None:
    context = ssl.create_default_context(cadata=certificate[1].decode())
    context.set_alpn_protocols(["h2"])

    async def scenario(world: World) -> None:
        held = [await asyncio.open_connection("localhost", world.server.port, ssl=context) for _ in range(MOST)]
        for reader, writer in held:
            assert await reader.read(9)  # the server's settings
            writer.write(sent)
        assert await world.honest() == b"alive"
        (oldest, _), *others = held
        with suppress(ConnectionError):
            assert goaway(0, ErrorCode.NO_ERROR, "the server ends") in await oldest.read()
        assert not any(reader.at_eof() for reader, _ in others)
        for _, each in held:
            each.close()

    played(runner, World(certificate, 600_000), scenario)


@pytest.mark.parametrize("runner", RUNNERS)
def test_who_has_had_an_answer_gives_way_to_nobody(runner: Any, certificate: Certificate) -> None:
    async def scenario(world: World) -> None:
        async with AsyncExitStack() as stack:
            asks = [await stack.enter_async_context(world.channel()) for _ in range(MOST)]
            for _ in range(2):
                for ask in asks:
                    assert await ask(b"", timeout=HANG_S) == b"alive"  # not wait_for_ready: none has to connect again
                for _ in range(MOST):
                    reader, beyond = await world.silent()
                    with suppress(ConnectionError):
                        assert await reader.read() == b""
                    beyond.close()

    played(runner, World(certificate, 600_000), scenario)


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_handshake_that_does_not_end_is_given_up(runner: Any, certificate: Certificate) -> None:
    async def scenario(world: World) -> None:
        held = [await world.silent() for _ in range(MOST)]
        for reader, writer in held:
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
        assert await world.honest() == b"alive"

    played(runner, World(certificate, 100), scenario)


def test_who_shakes_hands_and_then_is_silent_is_closed_too(certificate: Certificate) -> None:
    context = ssl.create_default_context(cadata=certificate[1].decode())
    context.set_alpn_protocols(["h2"])

    async def scenario(world: World) -> None:
        reader, writer = await asyncio.open_connection("localhost", world.server.port, ssl=context)
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    played(uvloop.run, World(certificate, 200), scenario)


@pytest.mark.parametrize("runner", RUNNERS)
def test_what_is_no_handshake_ends_its_connection_alone(runner: Any, certificate: Certificate) -> None:
    async def scenario(world: World) -> None:
        for content in (b"GET / HTTP/1.1\r\n\r\n", b"", bytes(1000)):
            reader, writer = await world.silent()
            writer.write(content)
            writer.write_eof()
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
        server: Any = world.server
        await until(lambda: not server._connections.arriving)
        assert world.failed == [ConnectionsRejected("handshake")] * 2  # who only connects is not counted
        assert await world.honest() == b"alive"

    played(runner, World(certificate, 600_000), scenario)


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_unix_socket_has_tls_in_the_place_of_one_that_was_left(
    runner: Any, certificate: Certificate, tmp_path: Path
) -> None:
    path = tmp_path / "grpc.sock"

    async def scenario(world: World) -> None:
        assert await world.honest(f"unix:{path}") == b"alive"

    for _ in range(2):
        played(runner, World(certificate, 600_000, str(path)), scenario)
        assert not path.exists()


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_handshake_under_way_when_the_port_closes_goes_on(runner: Any, certificate: Certificate) -> None:
    context = ssl.create_default_context(cadata=certificate[1].decode())
    context.set_alpn_protocols(["h2"])

    async def scenario(world: World) -> None:
        server: Any = world.server
        reader, writer = await world.silent()
        await until(lambda: len(server._connections.arriving) == 1)
        ending = asyncio.create_task(world.server.end_grace())
        await until(lambda: not server._servers)
        await writer.start_tls(context, server_hostname="localhost")
        assert await reader.read(9)  # of HTTP/2: the server's settings
        await ending
        writer.close()

    played(runner, World(certificate, 600_000), scenario)


@pytest.mark.parametrize("runner", RUNNERS)
def test_handshakes_do_not_keep_the_server_from_ending(runner: Any, certificate: Certificate) -> None:
    async def scenario(world: World) -> None:
        server: Any = world.server
        reader, writer = await world.silent()
        await until(lambda: len(server._connections.arriving) == 1)
        await world.server.stop(0)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        assert not server._connections.arriving
        writer.close()

    played(runner, World(certificate, 600_000), scenario)
