"""What ends a connection, and when: silence, age, idleness, slowness; on a clock that leaps."""

from __future__ import annotations

import asyncio
import struct
from math import inf
from typing import Any, cast

import pytest
import uvloop

from app.transports.http2 import frames
from app.transports.http2.frames import ACK, END_HEADERS, GOAWAY, HEADERS, LARGEST_STREAM, PING, PREFACE
from app.transports.http2.limits import Http2Limits
from app.transports.http2.protocol import Http2Connections, Http2Protocol
from app.transports.http2.sending import DRAIN, KEEPALIVE
from app.transports.http2.times import Times
from app.transports.memory.client_memory import ClientMemory
from tests.support.waiting import until
from tests.transports.http2.leaping_loop import Client, Frame, played, until_s
from tests.transports.http2.test_sans_io_connection import ANSWER, BLOCK, END, request


def ping(content: bytes, flags: int = 0) -> bytes:
    return frames.frame(PING, flags, 0, content)


def goaway(last: int) -> Frame:
    return Frame(GOAWAY, 0, 0, struct.pack(">II", last, 0))


LAST_CALL = [goaway(LARGEST_STREAM), Frame(PING, 0, 0, DRAIN)]


def answer(client: Client) -> None:
    stream = client.asked.pop(0)
    client.protocol.connection.send_whole(stream, ANSWER, b"", END)
    client.protocol.flush()
    client.transport.frames()


# --- slowness ---


@pytest.mark.parametrize("read_before", [0, 5_000_000])
@pytest.mark.parametrize("scarce", [True, False], ids=["memory is scarce", "memory is not"])
def test_who_stops_reading_is_closed_where_memory_is_scarce_however_much_it_read_before(
    read_before: int, scarce: bool
) -> None:
    """What it does not read lies in the socket's buffer: no stream is open any more."""
    memory = ClientMemory(1_000_000 if scarce else 10**9)

    async def scenario(client: Client) -> None:
        client.greet()
        client.send(
            frames.settings([(frames.INITIAL_WINDOW_SIZE, 2**30)]) + frames.window_update(0, 2**30) + request(1)
        )
        client.protocol.connection.send_whole(client.asked.pop(), ANSWER, bytes(600_000 + read_before))
        client.protocol.flush()
        await until_s(100)
        assert not client.transport.aborted, "it has read all of it so far"
        client.transport.held = 600_000
        client.protocol.pause_writing()
        client.protocol.flush()
        await until_s(300)
        assert client.transport.closed_s == (160 if scarce else inf)

    played(scenario, memory, slow_s=60.0)


@pytest.mark.parametrize("part", [b"", PREFACE[:10], PREFACE, PREFACE + frames.settings([])[:5]])
def test_a_connection_that_does_not_begin_is_closed(part: bytes) -> None:
    async def scenario(client: Client) -> None:
        client.send(part)
        await until_s(100)
        assert client.transport.aborted
        assert client.transport.closed_s == 20

    played(scenario, handshake_s=20.0)


@pytest.mark.parametrize(
    "head", [frames.head(10_000, HEADERS, END_HEADERS, 1), frames.frame(HEADERS, 0, 1, BLOCK)], ids=["frame", "list"]
)  # fmt: skip
def test_who_sends_a_head_for_ever_is_closed(head: bytes) -> None:
    """Byte by byte, or nothing at all of a list that goes on."""

    async def scenario(client: Client) -> None:
        client.greet()
        client.send(head)
        for second in range(1, 400):
            if client.transport.is_closing():
                break
            client.send(b"\0" if len(head) == 9 else b"")
            client.protocol.heard = True
            await until_s(second)
        assert 100 < client.transport.closed_s < 200

    played(scenario, keepalive_s=60.0, keepalive_timeout_s=20.0)


def test_who_takes_nothing_of_an_answer_is_cut_where_memory_is_scarce() -> None:
    memory = ClientMemory(10**6)

    async def scenario(client: Client) -> None:
        client.greet()
        client.send(request(1))
        stream = client.asked.pop()
        client.protocol.connection.send_data(stream, bytes(400_000))
        client.protocol.flush()
        assert memory.unread > 300_000
        await until_s(100)
        assert not client.transport.is_closing()  # less than half is held
        memory.change_unread(200_000)
        await until_s(200)
        assert client.transport.closed_s == 120
        memory.change_unread(-200_000)

    played(scenario, memory, slow_s=60.0)
    assert memory.unread == 0


# --- silence ---


def test_a_silent_client_is_asked_and_given_up_without_an_answer() -> None:
    async def scenario(client: Client) -> None:
        client.greet()
        await until_s(130)  # at 60 s it was heard, at 120 s it was not
        assert client.transport.frames() == [Frame(PING, 0, 0, KEEPALIVE)]
        assert not client.transport.is_closing()
        await until_s(200)
        assert client.transport.aborted
        assert client.transport.closed_s == 140

    played(scenario, keepalive_s=60.0, keepalive_timeout_s=20.0)


def test_a_silent_client_that_answers_stays() -> None:
    async def scenario(client: Client) -> None:
        client.greet()
        asked = 0
        for second in range(1, 2000):
            await until_s(second)
            for each in client.transport.frames():
                asked += 1
                client.send(ping(each.payload, ACK))
        assert not client.transport.is_closing()
        assert 20 < asked < 30

    played(scenario, keepalive_s=60.0, keepalive_timeout_s=20.0)


def test_a_client_without_calls_need_not_be_asked() -> None:
    async def scenario(client: Client) -> None:
        client.greet()
        await until_s(1000)
        assert client.transport.frames() == []
        client.send(request(1))
        await until_s(1200)
        assert client.transport.is_closing()

    played(scenario, keepalive_s=60.0, keepalive_timeout_s=20.0, keepalive_without_calls=False)


def test_a_client_may_ping_now_and_then_but_not_at_once() -> None:
    async def scenario(client: Client) -> None:
        client.greet()
        for second in range(1, 100):
            client.send(ping(b"12345678"))
            await until_s(2 * second)
        assert client.transport.frames() == [Frame(PING, ACK, 0, b"12345678")] * 99
        client.send(ping(b"12345678") * 4)
        (*_, last) = client.transport.frames()
        assert last.kind == GOAWAY
        assert last.payload[4:] == struct.pack(">I", frames.ErrorCode.ENHANCE_YOUR_CALM) + b"too_many_pings"
        assert client.transport.is_closing()

    played(scenario)


# --- the end in two steps ---


def test_an_old_connection_answers_what_its_client_opened_before_it_knew() -> None:
    async def scenario(client: Client) -> None:
        client.greet()
        client.send(request(1))
        await until_s(30)
        assert client.transport.frames() == LAST_CALL
        client.send(request(3))
        client.send(ping(DRAIN, ACK))
        assert client.transport.frames() == [goaway(3)]
        client.send(request(5))  # the client knows by then that it is not begun
        answer(client)
        assert not client.transport.is_closing()
        await until_s(40)
        answer(client)
        assert client.asked == []
        assert client.transport.closed_s == 40
        assert not client.transport.aborted

    played(scenario, age_s=30.0)


def test_an_answer_to_a_last_call_that_was_not_made_says_nothing() -> None:
    """Else requests behind it would be dropped, on a connection that goes on."""

    async def scenario(client: Client) -> None:
        client.greet()
        client.send(ping(DRAIN, ACK))
        client.send(request(1))
        assert len(client.asked) == 1
        assert client.transport.frames() == []

    played(scenario)


def test_requests_of_an_old_connection_have_a_time() -> None:
    async def scenario(client: Client) -> None:
        client.greet()
        client.send(request(1))
        await until_s(100)
        assert client.transport.closed_s == 35

    played(scenario, age_s=30.0, age_grace_s=5.0)


def test_who_does_not_answer_the_last_call_is_not_waited_for() -> None:
    async def scenario(client: Client) -> None:
        client.greet()
        client.send(request(1))
        await until_s(45)
        assert client.transport.frames() == LAST_CALL
        await until_s(60)
        assert client.transport.frames() == [goaway(1)]
        answer(client)
        assert client.transport.closed_s == 60

    played(scenario, age_s=30.0, keepalive_timeout_s=20.0)


def test_an_idle_connection_ends_and_one_that_is_used_does_not() -> None:
    async def scenario(client: Client) -> None:
        client.greet()
        for number in range(10):  # between two looks each
            await until_s(10 * number + 5)
            client.send(request(2 * number + 1))
            answer(client)
        assert client.transport.frames() == []
        await until_s(111)
        assert client.transport.frames() == LAST_CALL
        client.send(ping(DRAIN, ACK))
        assert client.transport.frames() == [goaway(19)]
        assert client.transport.closed_s == 111

    played(scenario, idle_s=10.0)


# --- on the event loops that there are ---


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
def test_a_timer_that_is_due_at_once_may_be_followed_by_another(runner: Any) -> None:
    """On the event loops that there are: uvloop's timer for no time does not know when it is due."""

    async def main() -> None:
        shared = Http2Connections(cast(Any, None), limits=Http2Limits(), memory=ClientMemory(), times=Times(), most=1)
        server = await asyncio.get_running_loop().create_server(lambda: Http2Protocol(shared), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(PREFACE + frames.settings([]))
        await until(lambda: any(each.connection.settings_came for each in shared.open))
        (served,) = shared.open
        served.drain()
        served.drain(1.0)
        served.end()
        await reader.read()
        writer.close()
        await until(lambda: not shared.open)
        server.close()

    runner(main())
