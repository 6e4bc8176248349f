"""The last reply of a connection over real sockets, on uvloop and on asyncio's event loop."""

from __future__ import annotations

import asyncio
import http.client
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest
import uvloop

from app.transports.http1 import ends
from tests.support.fakes import fake_time, run_in_fake_time
from tests.support.waiting import HANG_S, until
from tests.transports.http1.connection_world import LIMITS, MAX_BODY, Transport, World, played, request, stays_open

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
MIB = 1024**2


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


@pytest.mark.parametrize("loop", LOOPS)
def test_what_the_event_loop_has_not_seen_is_unread(loop: Any) -> None:
    async def client(world: World, port: int) -> None:
        world.device.seconds = 0.0
        with socket.create_connection(("127.0.0.1", port)) as connected:
            await until(lambda: len(world.state.connections) == 2)
            (connection,) = [each for each in world.state.connections if each is not world.connection]
            assert not connection.is_unread
            connected.sendall(request())
            assert connection.is_unread
            await until(lambda: connection._replies == 1)
            assert not connection.is_unread

    served(loop, client)


@pytest.mark.parametrize("cut", [10, -5])
def test_the_rest_of_a_request_is_not_waited_for(cut: int) -> None:
    async def main() -> None:
        world = World(True)
        await world.hear(request()[:cut])
        assert not world.connection.eof_received()  # the transport closes itself

    run_in_fake_time(main())


def test_many_that_are_rejected_together_all_read_it() -> None:
    """1.2 GB in all, of clients that read nothing before they have sent everything."""

    def sends(port: int) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("POST", "/v1/models/m:predict", b" " * (48 * MIB))
        with closing(connection):
            return connection.getresponse().status

    async def client(_: World, port: int) -> None:
        with ThreadPoolExecutor(25) as threads:
            running = asyncio.get_running_loop()
            replies = [running.run_in_executor(threads, sends, port) for _ in range(25)]
            assert await asyncio.gather(*replies) == [413] * 25

    served(uvloop.new_event_loop, client)


@contextmanager
def lingering(lost: Callable[[], None]) -> Iterator[tuple[Transport, socket.socket]]:
    """A transport that has a socket and lingers, and its client's, which does not close."""
    transport = Transport(asyncio.Protocol())
    with stays_open(transport) as client:
        ends.Lingering(transport, lambda _: lost())
        yield transport, client


@pytest.mark.parametrize(("sent", "every_s", "closes_s"), [(1, 60.0, 5.0), (1, 4.0, 30.0), (2 * MIB, 0.01, None)])
def test_lingering_has_bounds_of_silence_of_time_and_of_bytes(
    sent: int, every_s: float, closes_s: float | None
) -> None:
    async def main() -> None:
        lost: list[float] = []
        begun_s, arrived = fake_time(), 0
        with lingering(lambda: lost.append(fake_time())) as (transport, client):
            while not lost and fake_time() < begun_s + 40.0:
                arrived += client.send(b"x" * sent)
                for _ in range(int(every_s / 0.01)):
                    await asyncio.sleep(0.01)
                    if lost:
                        break
            assert transport.aborted
        if closes_s is None:
            assert 256 * MIB < arrived < 270 * MIB
        else:
            assert lost[0] - begun_s == pytest.approx(closes_s, abs=0.02)

    run_in_fake_time(main())


def test_it_ends_when_the_client_closes_and_when_it_resets() -> None:
    async def main(reset: bool) -> None:
        lost: list[float] = []
        with lingering(lambda: lost.append(fake_time())) as (_, client):
            client.send(b"x" * 1000)
            await asyncio.sleep(0.1)
            assert not lost
            if reset:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            await asyncio.sleep(0.1)
            assert lost

    for reset in (False, True):
        run_in_fake_time(main(reset))


def test_all_that_linger_have_a_tenth_of_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    drop = ends._drop

    def counted(transport: asyncio.Transport) -> int | None:
        looks.append(fake_time())
        return drop(transport)

    monkeypatch.setattr(ends, "_drop", counted)

    async def main() -> None:
        with ExitStack() as clients:
            for _ in range(400):
                clients.enter_context(lingering(lambda: None))
            await asyncio.sleep(2.0)
            assert len(looks) == pytest.approx(2.0 * 0.1 / 10e-6, rel=0.05)  # 10 us for each, where nothing waits
            await asyncio.sleep(ends._SILENCE_S)

    run_in_fake_time(main())


def test_who_is_closed_meanwhile_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its descriptor may be another connection's by then."""

    async def main() -> None:
        with lingering(lambda: None) as (transport, client):
            await asyncio.sleep(0.005)
            monkeypatch.setattr(transport, "closed", True)
            client.send(b"x")
            await asyncio.sleep(0.1)
            assert transport.get_extra_info("socket").recv(10) == b"x"

    run_in_fake_time(main())


def test_the_time_of_an_idle_connection_does_not_cut_a_request_that_began_before_the_last_reply() -> None:
    """Its first bytes came behind the request before; the rest takes longer than an idle connection has."""
    for first in (request(), request("/v2/models/m/ready", b"", method="GET")):
        second = request()
        world = played(True, [first + second[:30], 3 * LIMITS.keep_alive_s, second[30:]])
        assert [status for status, _, _ in world.replies()] == [200, 200]
