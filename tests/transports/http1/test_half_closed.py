"""Clients that stop sending, over real sockets, on uvloop and on asyncio's event loop."""

from __future__ import annotations

import asyncio
import errno
from typing import Any, cast

import pytest
import uvloop

from app.transports.http1 import half_closed
from tests.support.fakes import run_in_fake_time
from tests.support.waiting import HANG_S, until
from tests.transports.http1.connection_world import LIMITS, World, played, request, served

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


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
        world.device.seconds = 10 * half_closed._ASK_S
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


class Gone:
    """A transport whose client has gone: its kernel answers what is written with a reset, a round trip later."""

    def __init__(self, round_trip_s: float) -> None:
        self.aborted_s: float | None = None
        self._round_trip_s = round_trip_s
        self._reset = False

    def write(self, content: bytes) -> None:
        asyncio.get_running_loop().call_later(self._round_trip_s, self._answer)

    def _answer(self) -> None:
        self._reset = True

    def get_extra_info(self, name: str) -> Gone:
        assert name == "socket"
        return self

    def getsockopt(self, level: int, option: int) -> int:
        return errno.ECONNRESET if self._reset else 0

    def abort(self) -> None:
        self.aborted_s = asyncio.get_running_loop().time()


@pytest.mark.parametrize("round_trip_s", [0.0, 0.0002, 0.03, 0.2])
def test_a_client_that_has_gone_is_known_two_round_trips_after_it_was_asked(round_trip_s: float) -> None:
    """What it sent waits until then, and others are rejected for it: 3,000 such requests took half a second."""

    async def main() -> float:
        begin_s, transport = asyncio.get_running_loop().time(), Gone(round_trip_s)
        half_closed.HalfClosed(cast("asyncio.Transport", transport), lambda: True)
        await asyncio.sleep(1.0)
        assert transport.aborted_s is not None
        return transport.aborted_s - begin_s

    known_s = run_in_fake_time(main())
    assert round_trip_s < known_s <= 0.0101 + max(0.0011, 2.1 * round_trip_s)


@pytest.mark.parametrize("cut", [10, -5])
def test_the_rest_of_a_request_is_not_waited_for(cut: int) -> None:
    async def main() -> None:
        world = World(True)
        await world.hear(request()[:cut])
        assert not world.connection.eof_received()  # the transport closes itself

    run_in_fake_time(main())


def test_the_time_of_an_idle_connection_does_not_cut_a_request_that_began_before_the_last_reply() -> None:
    """Its first bytes came behind the request before; the rest takes longer than an idle connection has."""
    for first in (request(), request("/v2/models/m/ready", b"", method="GET")):
        second = request()
        world = played(True, [first + second[:30], 3 * LIMITS.keep_alive_s, second[30:]])
        assert [status for status, _, _ in world.replies()] == [200, 200]
