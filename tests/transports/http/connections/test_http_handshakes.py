"""Handshakes of TLS at a port of HTTP: they count, give way, and the server's end waits for them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
import uvloop

from app.transports.http.asgi import Send
from app.transports.http.connections.connection_limits import Connections
from app.transports.http.connections.http_handshakes import HttpHandshakes
from app.transports.http.direct.fast_path import FastPath
from app.transports.http1 import uvicorn_adapter
from app.transports.http1.uvicorn_adapter import HttpPort
from app.transports.ports import bind_port
from app.transports.rest_http2.begin import RestHttp2
from app.transports.tls.served_tls import ServedTls
from app.transports.tls.texts import TlsTexts
from tests.support.waiting import HANG_S, until
from tests.transports.http1.connection_world import LIMITS, request
from tests.transports.http1.quiet_server import QuietServer

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
in_both_loops = pytest.mark.parametrize("new_loop", LOOPS, ids=["asyncio", "uvloop"])

MOST = 4

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class World:
    def __init__(self, certificate: tuple[bytes, bytes], arrival_timeout_s: float = HANG_S) -> None:
        key, chain = certificate
        limits = replace(LIMITS, max_connections=MOST, arrival_timeout_s=arrival_timeout_s, keep_alive_s=HANG_S)
        self.asked = asyncio.Event()  # /slow was
        self.release = asyncio.Event()  # and may be answered
        fast_path = FastPath(lambda _: None)
        self.connections = Connections(limits, fast_path.clock)
        handshakes = HttpHandshakes(self.connections, ServedTls(lambda: TlsTexts(chain, key)))
        self.bound = bind_port(2, ("127.0.0.1", 0))
        port = HttpPort([self.bound], fast_path, RestHttp2(fast_path, limits), handshakes)
        self.server = QuietServer(self._answer, self.connections, port)
        self.context = ssl.create_default_context(cadata=chain.decode())
        self._clients: list[asyncio.StreamWriter] = []

    async def _answer(self, scope: Any, _: object, send: Send) -> None:
        if scope["path"] == "/slow":
            self.asked.set()
            await self.release.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def silent(self) -> Stream:
        return self._kept(await asyncio.open_connection(*self.bound.getsockname()))

    async def connect(self, *protocols: str) -> Stream:
        self.context.set_alpn_protocols(protocols or ("http/1.1",))
        address = self.bound.getsockname()
        return self._kept(await asyncio.open_connection(*address, ssl=self.context, server_hostname="localhost"))

    def _kept(self, stream: Stream) -> Stream:
        self._clients.append(stream[1])
        return stream

    async def close(self) -> None:
        for each in self._clients:
            each.close()
            with suppress(OSError):
                await each.wait_closed()

    async def ask(self, path: str, *protocols: str) -> bytes:
        reader, writer = await self.connect(*protocols)
        writer.write(request(path, b"", {"Connection": "close"}, "GET"))
        with suppress(ConnectionError):
            return await reader.read()
        return b""


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[None]:
    task = asyncio.create_task(world.server.serve([]))
    await until(lambda: bool(getattr(world.server, "servers", [])))
    try:
        yield
    finally:
        world.release.set()
        await world.close()
        world.server.should_exit = True
        await task


def played(new_loop: Callable[[], asyncio.AbstractEventLoop], scenario: Callable[[], Any]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())


@in_both_loops
def test_those_that_stall_count_and_give_way(new_loop: Any, certificate: tuple[bytes, bytes]) -> None:
    async def scenario() -> None:
        world = World(certificate)
        async with serving(world):
            held = [await world.silent() for _ in range(10 * MOST)]
            for _ in range(3):
                assert (await world.ask("/")).startswith(b"HTTP/1.1 200")
            assert world.connections.number() <= MOST
            for reader, _ in held[: -2 * MOST]:
                with suppress(ConnectionError):
                    assert await reader.read() == b""

    played(new_loop, scenario)


@in_both_loops
def test_a_full_server_tells_who_watches_it_in_http1_and_others_503(
    new_loop: Any, certificate: tuple[bytes, bytes]
) -> None:
    async def scenario() -> None:
        world = World(certificate)
        async with serving(world):
            slow = [asyncio.create_task(world.ask("/slow")) for _ in range(MOST)]
            await until(lambda: world.connections.number() == MOST)
            await world.asked.wait()
            await until(lambda: all(each.waits_since_s == float("inf") for each in world.connections._open))
            assert (await world.ask("/livez", "h2", "http/1.1")).startswith(b"HTTP/1.1 200")
            assert (await world.ask("/", "h2", "http/1.1")).startswith(b"HTTP/1.1 503")
            world.release.set()
            assert all(each.startswith(b"HTTP/1.1 200") for each in await asyncio.gather(*slow))

    played(new_loop, scenario)


@in_both_loops
def test_one_that_does_not_end_is_given_up(new_loop: Any, certificate: tuple[bytes, bytes]) -> None:
    async def scenario() -> None:
        world = World(certificate, arrival_timeout_s=0.1)
        async with serving(world):
            for begun in (b"", b"\x16\x03\x01"):
                reader, writer = await world.silent()
                writer.write(begun)
                with suppress(ConnectionError):
                    assert await reader.read() == b""
            await until(lambda: world.connections.number() == 0)

    played(new_loop, scenario)


@in_both_loops
def test_those_that_go_on_when_the_server_ends_get_their_answer(
    new_loop: Any, certificate: tuple[bytes, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uvicorn_adapter, "_LINGER_S", HANG_S)

    async def scenario() -> None:
        world = World(certificate)
        task = asyncio.create_task(world.server.serve([]))
        await until(lambda: bool(getattr(world.server, "servers", [])))
        begun = [await world.silent() for _ in range(MOST - 1)]
        await until(lambda: world.connections.number() == MOST - 1)
        world.server.should_exit = True
        await until(lambda: world.bound.fileno() < 0)  # nobody can connect any more
        for reader, writer in begun:
            await writer.start_tls(world.context, server_hostname="localhost")
            writer.write(request("/", b"", {"Connection": "close"}, "GET"))
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
        await world.close()
        await task

    played(new_loop, scenario)
