"""The last reply of a connection over real sockets, on uvloop and on asyncio's event loop."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import pytest
import uvloop

from app.transports.http1 import ends
from tests.support.fakes import fake_time, run_in_fake_time
from tests.support.waiting import HANG_S, until
from tests.transports.http1.connection_world import LIMITS, MAX_BODY, Transport, World, played, request

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
MIB = 1024**2


@pytest.fixture(autouse=True)
def _pace_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test throws away does not slow down the next."""
    monkeypatch.setattr(ends.Lingering, "_pace", ends._Pace())


def served(loop: Any, client: Callable[[World, int], Awaitable[None]]) -> None:
    """Runs a client of a world that listens on a port."""

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


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("headers", [{}, {"Content-Encoding": "gzip"}])
def test_a_client_that_sends_a_far_too_large_body_reads_its_413(loop: Any, headers: dict[str, str]) -> None:
    def sends(port: int) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("POST", "/v1/models/m:predict", b" " * (70 * MIB), headers)
        with closing(connection):
            return connection.getresponse().status

    async def client(_: World, port: int) -> None:
        assert await asyncio.to_thread(sends, port) == 413

    assert MAX_BODY < 70 * MIB
    served(loop, client)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("sent", [request(), request("/v2/models/m/ready", b"", method="GET"), request() + request()])
def test_a_client_that_stops_sending_gets_its_replies(loop: Any, sent: bytes) -> None:
    async def client(world: World, port: int) -> None:
        world.device.seconds = 0.0
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        writer.write_eof()
        reply = await reader.read()
        writer.close()
        await writer.wait_closed()
        assert reply.startswith(b"HTTP/1.1 200 OK")
        assert reply.count(b"HTTP/1.1 200 OK") == sent.count(b"Host")
        assert reply.count(b"connection: close") <= 1  # none where the reply was there before the end

    served(loop, client)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("headers", [{}, {"Content-Encoding": "identity"}])
def test_one_that_waits_for_long_is_asked_whether_it_is_there(loop: Any, headers: dict[str, str]) -> None:
    async def client(world: World, port: int) -> None:
        world.device.seconds = 3 * ends._ASK_S
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(headers=headers))
        writer.write_eof()
        reply = await reader.read()
        writer.close()
        await writer.wait_closed()
        assert reply.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")
        assert reply.count(b"HTTP/1.1") == 2

    served(loop, client)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("headers", [{}, {"Content-Encoding": "identity"}])
def test_the_request_of_a_client_that_has_gone_is_cancelled(loop: Any, headers: dict[str, str]) -> None:
    async def client(world: World, port: int) -> None:
        world.device.seconds = HANG_S
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(headers=headers))
        await until(lambda: bool(world.loaded.function.calls))
        writer.close()
        await writer.wait_closed()
        await until(lambda: [event.code for event in world.finished] == ["499"])
        assert len(world.state.connections) == 1  # that of the world itself

    served(loop, client)


@pytest.mark.parametrize("cut", [10, -5])
def test_the_rest_of_a_request_is_not_waited_for(cut: int) -> None:
    async def main() -> None:
        world = World(True)
        await world.hear(request()[:cut])
        assert not world.connection.eof_received()  # the transport closes itself

    run_in_fake_time(main())


@pytest.mark.parametrize(
    ("pieces", "closes_s"), [([b"x"], ends._SILENCE_S), ([b"x", 4.0] * 10, ends._LINGER_S), ([b"x" * MIB] * 257, 0.0)]
)
def test_lingering_has_bounds_of_silence_of_time_and_of_bytes(pieces: list[bytes | float], closes_s: float) -> None:
    async def main() -> None:
        lost: list[float] = []
        transport = Transport(asyncio.Protocol())
        transport.write_eof = lambda: None  # type: ignore[method-assign]  # this client does not close
        lingering = ends.Lingering(transport, lambda _: lost.append(fake_time()))
        begun_s = fake_time()
        for piece in pieces:
            if isinstance(piece, float):
                await asyncio.sleep(piece)
            elif not transport.closed:
                lingering.data_received(piece)
        await asyncio.sleep(ends._LINGER_S)
        assert [round(at_s - begun_s, 3) for at_s in lost] == [closes_s]

    run_in_fake_time(main())


def test_all_that_linger_are_read_at_one_bounded_rate() -> None:
    async def main() -> None:
        lost: list[float] = []
        transports = [Transport(asyncio.Protocol()) for _ in range(4)]
        for transport in transports:
            transport.write_eof = lambda: None  # type: ignore[method-assign]  # this client does not close
        lingering = [ends.Lingering(each, lambda _: lost.append(fake_time())) for each in transports]
        begun_s, seconds, sent = fake_time(), 10.0, 0
        while fake_time() < begun_s + seconds:
            for transport, each in zip(transports, lingering, strict=True):
                if transport.reading:
                    each.data_received(b"x" * (MIB // 4))
                    sent += MIB // 4
            await asyncio.sleep(0.001)
        most = ends._LINGER_BURST_BYTES + ends._LINGER_BYTES_PER_S * seconds
        assert sent == pytest.approx(most, rel=0.05)
        assert not lost  # who is not read is not silent

    run_in_fake_time(main())


def test_a_wait_for_the_next_read_ends_with_the_connection() -> None:
    async def main() -> None:
        transport = Transport(asyncio.Protocol())
        transport.write_eof = lambda: None  # type: ignore[method-assign]  # this client does not close
        lingering = ends.Lingering(transport, lambda _: None)
        for _ in range(130):
            lingering.data_received(b"x" * MIB)
        assert not transport.reading
        transport.abort()
        await asyncio.sleep(1.0)
        assert not transport.reading

    run_in_fake_time(main())


def test_the_time_of_an_idle_connection_does_not_cut_a_request_that_began_before_the_last_reply() -> None:
    """Its first bytes came behind the request before; the rest takes longer than an idle connection has."""
    for first in (request(), request("/v2/models/m/ready", b"", method="GET")):
        second = request()
        world = played(True, [first + second[:30], 3 * LIMITS.keep_alive_s, second[30:]])
        assert [status for status, _, _ in world.replies()] == [200, 200]
