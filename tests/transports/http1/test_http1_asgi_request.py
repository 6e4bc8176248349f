"""Requests that an ASGI application answers on a connection of ours."""

from __future__ import annotations

import asyncio
import json
from itertools import count
from typing import Any

import pytest

from app.transports.fairness.turns import PEER_S, Turns
from app.transports.lingering import Lingering
from tests.support.fakes import run_in_fake_time
from tests.support.waiting import until
from tests.transports.http1.connection_world import CHUNKS as CHUNKED
from tests.transports.http1.connection_world import COMPUTE_S, PREDICT, ROW, World, played, request, stays_open

READY = request("/v2/models/m/ready", b"", method="GET")


def test_the_connection_reads_again_after_the_response() -> None:
    async def main() -> None:
        world = World(True)
        await world.hear(READY)
        assert repr(world.connection) == "<Http1Connection answering by ASGI, 0 replies>"
        await asyncio.sleep(0.1)
        assert repr(world.connection) == "<Http1Connection idle, 1 replies>"
        writes = world.transport.writes
        await world.hear(request(), 0.1)
        assert repr(world.connection) == "<Http1Connection answering, 1 replies>"
        await asyncio.sleep(COMPUTE_S)
        assert repr(world.connection) == "<Http1Connection idle, 2 replies>"
        assert world.transport.writes == writes + 1

    run_in_fake_time(main())


def test_long_bodies_and_many_heads_are_no_long_head() -> None:
    chunk = b"10000\r\n" + b" " * 2**16 + b"\r\n"
    begin = request("/v1/nothing", b"", CHUNKED)
    world = played(True, [begin, *[chunk] * 20, b"0\r\n\r\n", 0.1, READY * 4000, 0.1])
    assert [status for status, _, _ in world.replies()] == [400] + [200] * 4000


def test_nothing_is_written_to_a_client_that_left_while_it_pipelined() -> None:
    async def main() -> None:
        world = World(True)
        with_body = request(body=b"1b\r\n" + json.dumps(ROW).encode() + b"\r\n0\r\n\r\n", headers=CHUNKED)
        await world.hear(with_body + with_body, 0.1)
        world.transport.close()
        await asyncio.sleep(4 * COMPUTE_S)
        assert not world.replies()

    run_in_fake_time(main())


def test_it_closes_the_connection_after_an_answer_to_a_head_whose_client_waits_for_a_100() -> None:
    """It may leave the body out, and then its next request would be read as the body."""

    async def main() -> None:
        world = World(True)
        waiting = request("/v1/nothing", b"hello", {"Expect": "100-continue"})
        await world.hear(waiting[:-5], 0.1)
        await world.hear(READY, 0.1)
        ((status, headers, _),) = world.replies()
        assert (status, headers["connection"]) == (400, "close")
        world.connection, world.transport = world.connect()
        await world.hear(waiting + READY, 0.1)  # this one did not wait
        assert [status for status, _, _ in world.replies()] == [400, 200]

    run_in_fake_time(main())


def test_it_keeps_the_connection_until_the_body_is_read_too() -> None:
    async def main() -> None:
        world = World(True)
        await world.hear(request("/v1/nothing", b"5\r\nhello\r\n", CHUNKED), 0.1)
        assert [status for status, _, _ in world.replies()] == [400]
        assert repr(world.connection) == "<Http1Connection answering by ASGI, 0 replies>"
        await world.hear(b"0\r\n\r\n")
        assert repr(world.connection) == "<Http1Connection idle, 1 replies>"
        await world.hear(request(), 2 * COMPUTE_S)
        assert [status for status, _, _ in world.replies()] == [400, 200]

    run_in_fake_time(main())


def test_it_answers_the_requests_that_arrive_behind_an_unusual_one() -> None:
    async def main() -> None:
        world = World(True)
        await world.hear(READY + request() + READY, 2 * COMPUTE_S, request(), 2 * COMPUTE_S)
        assert [status for status, _, _ in world.replies()] == [200] * 4
        assert repr(world.connection) == "<Http1Connection idle, 4 replies>"
        assert world.transport.reading

    run_in_fake_time(main())


def test_an_idle_connection_is_closed_whatever_answered_last() -> None:
    async def main() -> None:
        world = World(True)
        await world.hear(READY, 4.0, request(), 4.0)
        assert not world.transport.closed
        await world.hear(READY, 4.9)
        assert not world.transport.closed
        await asyncio.sleep(0.2)
        assert world.transport.closed

    run_in_fake_time(main())


def test_after_a_parse_error_the_connection_ends() -> None:
    world = played(True, [READY, 0.1, b"\x16\x03\x01\x02", 0.1])  # TLS where none is spoken
    assert [status for status, _, _ in world.replies()] == [200, 400]
    assert repr(world.connection) == "<Http1Connection ending, 1 replies>"
    assert world.transport.closed


def test_a_connection_tells_what_it_reads() -> None:
    async def main() -> None:
        world = World(True)
        await world.hear(request()[:-3])
        assert repr(world.connection) == "<Http1Connection reading a body, 0 replies>"
        await world.hear(request()[-3:] + b"more")
        assert repr(world.connection) == "<Http1Connection answering, 0 replies, 4 bytes behind>"
        assert not world.transport.reading
        await asyncio.sleep(2 * COMPUTE_S)
        await world.hear(b"\r\n")
        assert repr(world.connection) == "<Http1Connection ending, 1 replies>"  # "more" is no method
        assert world.transport.closed

    run_in_fake_time(main())


def test_a_server_that_stops_closes_idle_connections_and_lets_the_application_end_its_response() -> None:
    async def main() -> None:
        world = World(True)
        other, transport = world.connect()
        await world.hear(request(headers={"Content-Encoding": "identity"}), 0.1)
        assert len(world.state.connections) == 2
        for connection in list(world.state.connections):
            connection.shutdown()
        assert transport.closed
        assert not world.transport.closed
        await asyncio.sleep(2 * COMPUTE_S)
        ((status, headers, _),) = world.replies()
        assert (status, headers["connection"]) == (200, "close")
        assert not world.state.connections
        assert repr(other) == "<Http1Connection ending, 0 replies>"

    run_in_fake_time(main())


def test_json_in_chunks_is_read_byte_by_byte() -> None:
    async def main() -> None:
        world = World(True)
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(json.dumps(ROW)), json.dumps(ROW).encode())
        for byte in request(PREDICT, body, CHUNKED):
            await world.hear(bytes([byte]))
        await asyncio.sleep(2 * COMPUTE_S)
        ((status, _, content),) = world.replies()
        assert (status, json.loads(content)) == (200, {"predictions": [[2.0, 4.0]]})

    run_in_fake_time(main())


def test_a_head_does_not_wait_for_its_body() -> None:
    """A client of a stream may send its lines only when it has seen the head."""

    async def application(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(1.0)
        await send({"type": "http.response.body", "body": b"later"})

    async def main() -> None:
        world = World(True)
        world.connection._server.application = application
        await world.hear(READY, 0.1)
        assert world.transport.out.startswith(b"HTTP/1.1 200 OK\r\n")
        assert world.transport.out.endswith(b"transfer-encoding: chunked\r\n\r\n")
        await asyncio.sleep(1.0)
        assert world.transport.out.endswith(b"\r\n\r\n5\r\nlater\r\n0\r\n\r\n")

    run_in_fake_time(main())


@pytest.mark.parametrize(
    "messages",
    [
        [{"type": "http.response.body"}],
        [],
        [{"type": "http.response.start", "status": 200, "headers": [(b"x", b"a\r\nb")]}],
        [{"type": "http.response.start", "status": 200, "headers": [(b"x", b"a\nb")]}],
        [{"type": "http.response.start", "status": 200, "headers": [(b"x", b"a\rb")]}],
    ],
    ids=["no start", "nothing", "line end", "line feed", "carriage return"],
)
def test_an_application_that_breaks_the_rules_is_answered_for(
    messages: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    async def main() -> None:
        world = World(True, application=application)
        await world.hear(READY, 0.1)
        ((status, headers, body),) = world.replies()
        assert (status, headers["content-type"], "x" in headers) == (500, "application/json", False)
        assert "error" in json.loads(body)
        assert bool(messages) == ("A bug ended GET /v2/models/m/ready" in caplog.text)
        await world.hear(request("/v1/nothing", b"", method="GET"), 0.1)
        assert len(world.replies()) == 2, "the connection stays"

    run_in_fake_time(main())


def test_a_response_that_stops_in_the_middle_ends_its_connection() -> None:
    """So the client sees that it is not complete."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})

    async def main() -> None:
        world = World(True, application=application)
        await world.hear(READY, 0.1)
        assert world.transport.closed

    run_in_fake_time(main())


# --- bodies that are read in turns ---


def _looks_at_the_clock_take_long() -> None:
    """So a turn is over after a slice of a body."""
    ticks = count(0.0, PEER_S / 2)
    Turns.of_loop(lambda: next(ticks))


def _chunks(number: int) -> bytes:
    return b"1;a=b\r\n \r\n" * number


def _answers_unread(connection: bytes) -> Any:
    """An application that answers before it has read the body."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"2"), (b"connection", connection)]
        await send({"type": "http.response.start", "status": 404, "headers": headers})
        await send({"type": "http.response.body", "body": b"no"})

    return application


@pytest.mark.parametrize("ends", [b"0\r\n\r\n", b""])
def test_nothing_is_read_behind_a_response_that_closes_the_connection(ends: bytes) -> None:
    async def main() -> None:
        _looks_at_the_clock_take_long()
        world = World(True, application=_answers_unread(b"close"))
        await world.hear(request("/v1/nothing", _chunks(20_000) + ends, CHUNKED) + READY, 0.1)
        assert [status for status, _, _ in world.replies()] == [404]
        assert world.transport.closed
        assert not world.state.connections

    run_in_fake_time(main())


def test_much_that_is_unread_ends_the_connection_once() -> None:
    async def main() -> None:
        _looks_at_the_clock_take_long()
        world = World(True, application=_answers_unread(b"keep-alive"))
        with stays_open(world.transport):
            await world.hear(request("/v1/nothing", _chunks(50_000), CHUNKED), 0.1)
            assert [status for status, _, _ in world.replies()] == [404]
            assert world.state.total_requests == 1
            world.transport.close()
            await asyncio.sleep(0.1)
        assert Lingering._open.get(asyncio.get_running_loop(), 0) == 0

    run_in_fake_time(main())


def test_a_client_that_goes_while_its_body_waits_for_a_turn_leaves_nothing_behind() -> None:
    async def main() -> None:
        _looks_at_the_clock_take_long()
        world = World(True)
        before = asyncio.all_tasks()
        await world.hear(request("/v1/nothing", _chunks(20_000), CHUNKED))
        turns, share = world.connection.turns, world.connection.share
        assert turns.waits(share)
        world.transport.close()
        await asyncio.sleep(0.1)
        assert asyncio.all_tasks() == before
        assert not turns.waits(share)
        assert not world.state.tasks

    run_in_fake_time(main())


def test_a_body_that_is_long_is_read_on_when_the_application_waits_for_it_and_not_before() -> None:
    """A client that sends during the computation is not read, and not cut for its pace either."""
    part = b"%x\r\n%b\r\n" % (70_000, b" " * 70_000)
    computed = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["more_body"]
        await computed.wait()
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def main() -> None:
        world = World(True, application=application)
        await world.hear(request("/v1/nothing", part, CHUNKED), 0.1)
        assert not world.transport.reading
        await asyncio.sleep(3600.0)
        assert not world.transport.reading
        assert not world.transport.closed
        computed.set()
        await until(lambda: world.transport.reading)
        await world.hear(part, 0.1, b"0\r\n\r\n", 0.1)
        assert [status for status, _, _ in world.replies()] == [200]

    run_in_fake_time(main())


def test_a_body_in_tiny_chunks_comes_whole_and_others_of_its_client_are_answered_meanwhile() -> None:
    came: list[bytes] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        more = scope["method"] == "POST"
        while more:
            message = await receive()
            more = message["more_body"]
            came.append(message["body"])
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    async def main() -> None:
        _looks_at_the_clock_take_long()
        world = World(True, application=application)
        await world.hear(request("/v1/nothing", _chunks(20_000) + b"0\r\n\r\n", CHUNKED) + READY)
        assert not world.transport.reading
        connection, transport = world.connect()
        connection.data_received(READY)
        await until(lambda: bool(world.replies(transport)))
        assert not world.replies()
        await asyncio.sleep(0.1)
        assert [status for status, _, _ in world.replies()] == [200, 200]
        assert b"".join(came) == b" " * 20_000
        assert world.transport.reading

    run_in_fake_time(main())
