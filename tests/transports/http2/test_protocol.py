"""What connections on sockets hold of the memory for clients, and which of them give way."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from itertools import count
from math import inf
from typing import Any

import pytest
import uvloop

from app.transports.fairness.turns import PEER_S
from app.transports.http2 import frames
from app.transports.http2.frames import PREFACE
from app.transports.http2.limits import Http2Limits
from app.transports.http2.protocol import Http2Connections, Http2Protocol
from app.transports.http2.stream import Stream
from app.transports.http2.times import Times
from app.transports.memory.client_memory import ClientMemory
from tests.support.waiting import until
from tests.transports.http2.leaping_loop import Client, played
from tests.transports.http2.test_sans_io_connection import ANSWER, END, request


def test_what_many_streams_stood_in_is_counted_until_none_is_open() -> None:
    memory = ClientMemory(10**9)

    async def scenario(client: Client) -> None:
        client.greet()
        numbers = range(1, 4001, 2)
        client.send(b"".join(request(number, end=False) for number in numbers))
        assert memory.unread > 2000 * 4096
        client.send(b"".join(frames.rst_stream(number, 8) for number in numbers[1:]))
        assert 30_000 < memory.unread < 300_000  # a dictionary does not shrink
        client.send(frames.rst_stream(1, 8))
        assert memory.unread == 0

    played(scenario, memory)


def test_what_the_transport_has_is_counted_while_it_takes_no_more() -> None:
    """Also where no stream has more to send."""
    memory = ClientMemory(10**6)

    async def scenario(client: Client) -> None:
        client.greet()
        client.transport.held = 300_000
        client.protocol.pause_writing()
        client.protocol.flush()
        assert 0 <= memory.unread - 300_000 < 1000  # what has room for streams is counted with it
        client.transport.held = 0
        client.protocol.resume_writing()
        assert memory.unread == 0

    played(scenario, memory)


def test_an_aborted_connection_holds_nothing_of_what_its_transport_has() -> None:
    """uvloop's transport still has its buffer when it says that the connection is lost."""
    memory = ClientMemory(10**8)

    class Answering:
        def begin(self, connection: Http2Protocol, stream: Stream, *_: Any) -> None:
            connection.connection.send_whole(stream, ANSWER, bytes(2**23), END)

    async def main() -> None:
        shared = Http2Connections(Answering(), limits=Http2Limits(), times=Times(), memory=memory, most=1)
        listening = await asyncio.get_running_loop().create_server(lambda: Http2Protocol(shared), "127.0.0.1", 0)
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(listening.sockets[0].getsockname())
        windows = frames.settings([(frames.INITIAL_WINDOW_SIZE, 2**30)]) + frames.window_update(0, 2**30)
        client.sendall(PREFACE + windows + request(1))
        await until(lambda: any(each.connection.blocked for each in shared.open))
        assert memory.unread > 2**20
        (served,) = shared.open
        served.transport.abort()
        await until(lambda: not shared.open)
        assert memory.unread == 0
        served.flush()  # as for calls that were answered in the same turn
        served.flush()
        assert memory.unread == 0
        assert served.timer._handle is None
        client.close()
        listening.close()

    uvloop.run(main())


def test_a_connection_that_is_lost_holds_nothing_of_messages() -> None:
    """Whoever owned their requests."""
    memory = ClientMemory(10**8)

    async def scenario(client: Client) -> None:
        client.greet()
        client.send(request(1, end=False))
        assert client.protocol.hold(10**6)
        assert memory.bodies > 10**5

    played(scenario, memory)
    assert memory.bodies + memory.unread == 0


# --- turns ---


def _looks_at_the_clock_take_long(client: Client) -> None:
    """So a turn is over after two slices."""
    ticks = count(0.0, PEER_S / 2)
    client.protocol.turns.clock = lambda: next(ticks)


def _notes_reading(client: Client) -> list[bool]:
    """Of the socket, since this was asked."""
    said: list[bool] = []
    transport: Any = client.transport
    transport.pause_reading = lambda: said.append(False)
    transport.resume_reading = lambda: said.append(True)
    return said


def test_frames_are_read_in_turns_and_nothing_more_of_the_socket_meanwhile() -> None:
    numbers = range(1, 2001, 2)

    async def scenario(client: Client) -> None:
        client.greet()
        _looks_at_the_clock_take_long(client)
        reading = _notes_reading(client)
        client.send(b"".join(map(request, numbers[:-1])))
        read, turns = len(client.asked), 0
        assert 0 < read < 100
        assert reading == [False]
        client.send(request(numbers[-1]))  # the socket's transport had it already
        assert len(client.asked) == read
        while len(client.asked) < len(numbers):
            await asyncio.sleep(0)
            assert len(client.asked) - read < 100
            read, turns = len(client.asked), turns + 1
        assert turns > 10
        assert [stream.id for stream in client.asked] == list(numbers)
        assert reading.count(True) == 1
        assert reading[-1]

    played(scenario)


def test_a_socket_that_is_full_is_not_read_when_the_frames_are() -> None:
    async def scenario(client: Client) -> None:
        client.greet()
        _looks_at_the_clock_take_long(client)
        client.send(b"".join(map(request, range(1, 401, 2))))
        client.protocol.pause_writing()
        reading = _notes_reading(client)
        await until(lambda: len(client.asked) == 200)
        await asyncio.sleep(0)
        assert True not in reading
        client.protocol.resume_writing()
        assert reading[-1]

    played(scenario)


def test_frames_of_a_connection_that_is_lost_are_not_read() -> None:
    async def scenario(client: Client) -> None:
        client.greet()
        _looks_at_the_clock_take_long(client)
        client.send(b"".join(map(request, range(1, 401, 2))))
        read = len(client.asked)
        client.protocol.connection_lost(None)
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(client.asked) == read
        assert not client.protocol.turns.waits(client.protocol.share)

    played(scenario)


def test_requests_of_a_connection_that_is_lost_hear_of_it_in_turns_and_in_order() -> None:
    class Owner:
        def __init__(self, number: int) -> None:
            self.number = number

        def gone(self) -> None:
            gone.append(self.number)

    gone: list[int] = []
    numbers = range(1, 401, 2)

    async def scenario(client: Client) -> None:
        client.greet()
        client.send(b"".join(map(request, numbers)))
        for stream in client.asked:
            stream.owner = Owner(stream.id)
        _looks_at_the_clock_take_long(client)
        client.protocol.connection_lost(None)
        told, turns = len(gone), 0
        while len(gone) < len(numbers):
            await asyncio.sleep(0)
            assert len(gone) - told < 100
            told, turns = len(gone), turns + 1
        assert turns > 2
        assert gone == list(numbers)
        assert client.protocol.share.closed

    played(scenario)


# --- room ---


def test_without_room_the_oldest_gives_way_that_has_had_no_request() -> None:
    class Answering:
        def begin(self, connection: Http2Protocol, stream: Stream, *_: Any) -> None:
            connection.connection.send_whole(stream, ANSWER, b"", END)

    async def main() -> None:
        shared = Http2Connections(Answering(), limits=Http2Limits(), times=Times(), memory=ClientMemory(), most=3)
        server = await asyncio.get_running_loop().create_server(lambda: Http2Protocol(shared), "127.0.0.1", 0)

        async def connected() -> tuple[asyncio.StreamReader, bytes]:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writers.append(writer)
            came = b""
            with suppress(ConnectionError):
                came = await reader.read(frames.HEAD_BYTES)
            return reader, came

        writers: list[asyncio.StreamWriter] = []
        (first, _), (second, _), (third, _) = [await connected() for _ in range(3)]
        for writer in writers[:2]:
            writer.write(PREFACE + frames.settings([]))
        writers[0].write(request(1))
        await until(lambda: len(shared.unused) == 2)
        fourth, _ = await connected()
        assert frames.goaway(0, frames.ErrorCode.NO_ERROR, "the server ends") in await second.read()
        assert len(shared.open) == 3

        for writer in writers[2:]:
            writer.write(PREFACE + frames.settings([]) + request(1))
        await until(lambda: not shared.unused)
        _, came = await connected()
        assert not came, "all of them are used"
        assert not any(each.at_eof() for each in (first, third, fourth))
        for writer in writers:
            writer.close()
        await until(lambda: not shared.open)
        server.close()

    asyncio.run(main())


@pytest.mark.parametrize(("alpn", "closed"), [("h2", False), ("http/1.1", True), ("", True)])
def test_a_client_of_tls_has_to_choose_http2(alpn: str, closed: bool) -> None:
    async def scenario(client: Client) -> None:
        assert (client.transport.closed_s < inf) == closed

    played(scenario, alpn=alpn)


@pytest.mark.parametrize("steps", [("end", "hasten"), ("hasten", "end"), ("hasten", "end", "hasten")])
def test_who_is_hastened_lingers_no_longer_whether_it_does_so_now_or_later(
    steps: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    hastened: list[bool] = []

    class Lingers:
        def __init__(self, *_: Any) -> None:
            hastened.append(False)

        def hasten(self) -> None:
            hastened[-1] = True

    monkeypatch.setattr("app.transports.http2.protocol.Lingering", Lingers)

    async def scenario(client: Client) -> None:
        client.greet()
        for step in steps:
            getattr(client.protocol, step)()
        assert hastened == [True]

    played(scenario)
