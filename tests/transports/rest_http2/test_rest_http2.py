"""A request of HTTP/2 is answered as the same one of HTTP/1.1, and ends as RFC 9113 says."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection

from app.core.events import RequestFinished
from app.transports.http2 import frames
from app.transports.http2.frames import PREFACE, ErrorCode
from app.transports.http2.limits import Http2Limits
from app.transports.http2.protocol import Http2Protocol
from app.transports.http2.stream import Stream
from app.transports.http2.times import Times
from app.transports.memory.body_room import BodyRoom
from app.transports.memory.client_memory import ClientMemory
from app.transports.rest_http2.application import GrpcOnRestPort
from tests.laws.transports.ledger import timers
from tests.support.fakes import fake_time, run_in_fake_time
from tests.transports.http1.connection_world import (
    COMPUTE_S,
    INFER,
    LIMITS,
    MAX_BODY,
    PREDICT,
    ROW,
    TIMEOUT_MS,
    V2_ROW,
    World,
    request,
    stays_open,
)
from tests.transports.rest_http2.http2_client import Client, Reply

WAIT_S = 3.5 * COMPUTE_S

UPGRADE = {
    "Connection": "Upgrade, HTTP2-Settings",
    "Upgrade": "h2c",
    "HTTP2-Settings": "AAMAAABkAAQAAP__",
    "Content-Length": "",
}


def played(scenario: Callable[[Client], Awaitable[Any]], **more: Any) -> World:
    async def main() -> World:
        world = World(True, **more)
        await scenario(Client(world))
        return world

    return run_in_fake_time(main())


def answered(world: World, client: Client, number: int) -> Reply:
    client.read()
    return client.replies[number]


# --- the same answers ---

GZIP = gzip.compress(json.dumps(ROW).encode())
LONG = json.dumps(ROW).encode() + b" " * 150_000
TOO_LONG = LONG + b" " * MAX_BODY

SAME: dict[str, dict[str, Any]] = {
    "predict": {},
    "predict by columns": {"body": {"inputs": [[1.0, 2.0]]}},
    "v2 infer": {"path": INFER, "body": V2_ROW},
    "a page": {"path": "/v2/models/m/ready", "method": "GET", "body": b""},
    "a page with a query": {"path": "/v2/models/m/ready?x=%20y", "method": "GET", "body": b""},
    "a body that is compressed": {"body": GZIP, "headers": {"content-encoding": "gzip"}},
    "a body that is compressed in another way": {"body": GZIP, "headers": {"content-encoding": "br"}},
    "no such model": {"path": "/v1/models/none:predict"},
    "no such path": {"path": "/v1/nothing"},
    "a body that is no JSON": {"body": b"{"},
    "no body": {"body": b""},
    "a body that is too long": {"body": TOO_LONG},
    "a body that is long": {"body": LONG},
    "another shape": {"body": {"instances": [[1.0]]}},
    "another method": {"method": "DELETE", "body": b""},
    "a method that is not known": {"method": "FETCH", "body": b""},
    "a priority": {"headers": {"x-request-priority": "1"}},
    "a wrong time-out": {"headers": {"x-request-timeout-ms": "-1"}},
    "a time that is over": {"headers": {"x-request-timeout-ms": "1"}},
    "a long request line": {"path": "/" + "x" * 9000},
    "a long head": {"headers": {"x": "y" * 33_000}},
    "many fields": {"headers": {f"x-{number}": "y" for number in range(200)}},
}


@pytest.mark.parametrize("cors", [False, True])
@pytest.mark.parametrize("asked", SAME.values(), ids=SAME.keys())
def test_the_answer_is_that_of_http1(asked: dict[str, Any], cors: bool) -> None:
    async def over_http1() -> tuple[Any, Any]:
        world = World(True, cors)
        await world.hear(request(**{**asked, **({"headers": asked["headers"]} if "headers" in asked else {})}))
        await asyncio.sleep(WAIT_S)
        ((status, headers, body),) = world.replies()
        return (status, {**headers, "connection": ""}, body), world.told()

    async def over_http2() -> tuple[Any, Any]:
        world = World(True, cors)
        client = Client(world)
        headers = [(name.encode(), value.encode()) for name, value in asked.get("headers", {}).items()]
        reply = await client.reply(client.ask(**{**asked, "headers": headers}), WAIT_S)
        assert reply.ended
        assert not client.goaways
        return (reply.status, {**reply.headers, "connection": ""}, reply.body), world.told()

    assert run_in_fake_time(over_http2()) == run_in_fake_time(over_http1())


@pytest.mark.parametrize("body", [TOO_LONG, LONG], ids=["too long", "long"])
def test_a_length_that_was_not_announced_is_counted(body: Any) -> None:
    async def scenario(client: Client) -> None:
        reply = await client.reply(client.ask(body=body, sized=False))
        assert reply.status == (413 if body is TOO_LONG else 200)

    played(scenario)


def test_head_has_no_body() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b""})

    async def scenario(client: Client) -> None:
        reply = await client.reply(client.ask("/", b"", method="HEAD"))
        assert (reply.status, reply.headers["content-length"], reply.body, reply.ended) == (200, "5", b"", True)

    played(scenario, application=application)


def test_requests_of_both_versions_that_come_in_one_turn_are_computed_together() -> None:
    async def main() -> None:
        world = World(True, inline_s=1.0)
        client = Client(world)
        other, transport = world.connect()
        one = client.ask(body={"instances": [[1.0, 2.0]]})
        other.data_received(request(body={"instances": [[3.0, 4.0]]}))
        two = client.ask(body={"instances": [[5.0, 6.0]]})
        other_client = Client(world)
        three = other_client.ask(body={"instances": [[7.0, 8.0]]})
        await asyncio.sleep(WAIT_S)
        client.read()
        other_client.read()

        ((_, _, body),) = world.replies(transport)
        bodies = [client.replies[one].body, body, client.replies[two].body, other_client.replies[three].body]
        alone = [await _alone([[1.0, 2.0]]), await _alone([[3.0, 4.0]]), await _alone([[5.0, 6.0]])]
        assert bodies == [*alone, await _alone([[7.0, 8.0]])]
        assert [len(call) for call in world.loaded.function.calls] == [4]

    async def _alone(rows: Any) -> bytes:
        world = World(True)
        await world.hear(request(body={"instances": rows}))
        await asyncio.sleep(WAIT_S)
        return world.replies()[0][2]

    run_in_fake_time(main())


def test_cookies_are_joined_and_the_authority_is_the_host() -> None:
    """RFC 9113, sections 8.2.3 and 8.3.1."""
    scopes = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def scenario(client: Client) -> None:
        crumbs = [(b"cookie", b"a=b"), (b"x", b"y"), (b"cookie", b"c=d")]
        reply = await client.reply(client.ask("/a%20b?c", b"", crumbs, method="GET"))
        assert (reply.status, reply.ended) == (204, True)

    played(scenario, application=application)
    (scope,) = scopes
    assert sorted(scope["headers"]) == [(b"cookie", b"a=b; c=d"), (b"host", b"here"), (b"x", b"y")]
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/a b", b"/a%20b", b"c")
    assert (scope["http_version"], scope["scheme"]) == ("2", "http")


# --- what is no request ---

HEAD = {b":method": b"GET", b":scheme": b"http", b":path": b"/v2/models/m/ready", b":authority": b"here"}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({b":authority": b"here:8501"}, 200),
        ({b":authority": b"[::1]:8501"}, 200),
        ({b"host": b"here"}, 200),
        ({b"host": b"there"}, 400),
        ({b":authority": b"", b"host": b"here"}, 200),
        ({b":authority": b"he re"}, 400),
        ({b":path": b"v2/models/m/ready"}, 400),
        ({b":path": b"http://here/v2/models/m/ready"}, 400),
        ({b":path": b"/v2/models/m/ready#x"}, 400),
        ({b":path": b"/v2/models/m/\xe4"}, 400),
        ({b":path": b"*"}, 400),
        ({b":method": b"get"}, 501),
        ({b":method": b"TRACE"}, 405),
    ],
    ids=str,
)  # fmt: skip
def test_what_a_head_may_have(change: dict[bytes, bytes], status: int) -> None:
    async def scenario(client: Client) -> None:
        reply = await client.reply(client.send([*{**HEAD, **change}.items()]))
        assert reply.status == status
        assert status < 400 or json.loads(reply.body).keys() == {"error"}

    played(scenario)


@pytest.mark.parametrize("authority", [[], [(b":authority", b"here")]], ids=["without", "with"])
def test_a_second_host_is_rejected_though_it_is_the_same(authority: list[tuple[bytes, bytes]]) -> None:
    """RFC 9110, section 7.2, as over HTTP/1.1: who reads the first, and who reads the last, must not differ."""
    head = [(name, value) for name, value in HEAD.items() if name != b":authority"]

    async def scenario(client: Client) -> None:
        reply = await client.reply(client.send([*head, *authority, (b"host", b"here"), (b"host", b"here")]))
        assert reply.status == 400

    played(scenario)


def test_connect_is_not_known_here() -> None:
    async def scenario(client: Client) -> None:
        reply = await client.reply(client.send([(b":method", b"CONNECT"), (b":authority", b"here:80")]))
        assert reply.status == 501

    played(scenario)


@pytest.mark.parametrize(
    "fields",
    [
        [*HEAD.items(), (b":path", b"/")],
        [*list(HEAD.items())[:2]],
        [*HEAD.items(), (b"connection", b"close")],
        [*HEAD.items(), (b"transfer-encoding", b"chunked")],
        [*HEAD.items(), (b"X", b"y")],
        [*HEAD.items(), (b"content-length", b"1")],
        [(b":method", b"CONNECT"), (b":path", b"/"), (b":authority", b"here")],
    ],
    ids=["two paths", "no path", "connection", "transfer-encoding", "upper case", "length", "CONNECT with a path"],
)
def test_a_malformed_request_resets_its_stream_alone(fields: list[tuple[bytes, bytes]]) -> None:
    async def scenario(client: Client) -> None:
        reply = await client.reply(client.send(fields))
        assert reply.reset == ErrorCode.PROTOCOL_ERROR
        assert (await client.reply(client.ask())).status == 200

    played(scenario)


def test_a_body_of_another_length_resets_its_stream() -> None:
    async def scenario(client: Client) -> None:
        number = client.ask(headers=[(b"content-length", b"5")], sized=False)
        assert (await client.reply(number)).reset == ErrorCode.PROTOCOL_ERROR

    world = played(scenario)
    assert [code for _, code, *_ in world.told()] == ["499"]


def test_trailers_end_a_request() -> None:
    async def scenario(client: Client) -> None:
        number = client.ask(ended=False)
        client.h2.send_headers(number, [(b"x", b"y")], end_stream=True)
        client.push()
        assert (await client.reply(number)).status == 200

    played(scenario)


# --- how a connection becomes one of HTTP/2 ---


@pytest.mark.parametrize("cut", range(1, len(PREFACE)))
def test_the_preface_is_known_however_it_is_cut(cut: int) -> None:
    async def main() -> None:
        world = World(True)
        client = Client(world, preface=False)
        client.h2.initiate_connection()
        sent = client.h2.data_to_send()
        client.transport.hear(sent[:cut])
        await asyncio.sleep(0.1)
        client.transport.hear(sent[cut:])
        assert (await client.reply(client.ask())).status == 200

    run_in_fake_time(main())


def test_what_only_begins_like_the_preface_is_none() -> None:
    async def scenario(client: Client) -> None:
        _, transport = client.world.connect()
        transport.hear(b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n")
        await asyncio.sleep(WAIT_S)
        assert transport.closed
        assert transport.out.endswith(b"expected the preface of HTTP/2")

    played(scenario)


def test_nothing_is_smuggled_behind_a_request_that_asks_for_http2() -> None:
    """A proxy that forwards Upgrade takes what follows a 101 for a tunnel, and checks it no more."""

    async def main() -> None:
        world = World(True)
        await world.hear(request("/v2/models/m/ready", b"", UPGRADE, "GET"))
        await asyncio.sleep(WAIT_S)
        assert [status for status, _, _ in world.replies()] == [200]
        await world.hear(PREFACE + frames.settings([]))
        await asyncio.sleep(WAIT_S)
        assert [status for status, _, _ in world.replies()] == [200, 400]
        assert world.transport.closed

    run_in_fake_time(main())


# --- bodies that come slowly, memory ---


@pytest.mark.parametrize("path", [PREDICT, "/v1/nothing"])
def test_a_body_that_does_not_come_is_given_up(path: str) -> None:
    memory = ClientMemory(10**6)

    async def scenario(client: Client) -> None:
        number = client.ask(path, b"x" * 100_000, ended=False, sized=False)
        reply = await client.reply(number, 2 * LIMITS.arrival_timeout_s + 1)
        assert reply.status == 408
        assert memory.bodies == 0

    world = played(scenario, memory=memory, application=_reads if path != PREDICT else None)
    assert [code for _, code, *_ in world.told()] == (["499"] if path == PREDICT else [])


def test_a_get_that_does_not_end_is_given_up() -> None:
    memory = ClientMemory(10**6)

    async def scenario(client: Client) -> None:
        number = client.ask("/", b"x" * 10_000, method="GET", ended=False)
        reply = await client.reply(number, 2 * LIMITS.arrival_timeout_s + 1)
        assert (reply.status, reply.reset, memory.bodies) == (408, ErrorCode.NO_ERROR, 0)

    played(scenario, memory=memory)


async def _reads(scope: Any, receive: Any, send: Any) -> None:
    """Reads all of the body and answers with its length."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"%d" % size})


def test_one_that_comes_steadily_is_read() -> None:
    async def scenario(client: Client) -> None:
        number = client.send([*{**HEAD, b":method": b"POST", b":path": b"/"}.items()], b"x", ended=False)
        for _ in range(10):
            await asyncio.sleep(LIMITS.arrival_timeout_s / 2)
            await client.upload(number, b"x" * LIMITS.min_body_bytes_per_s * int(LIMITS.arrival_timeout_s))
        client.content(number, b"x")
        assert int((await client.reply(number)).body) > 5e6

    played(scenario, application=_reads)


@pytest.mark.parametrize("path", [PREDICT, "/v1/nothing"])
@pytest.mark.parametrize("sized", [True, False])
def test_a_body_needs_room_in_memory(path: str, sized: bool) -> None:
    memory = ClientMemory(400_000)
    assert memory.take_body(290_000)

    async def scenario(client: Client) -> None:
        reply = await client.reply(client.ask(path, b"x" * 190_000, sized=sized))
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert memory.bodies == 290_000
        assert (await client.reply(client.ask())).status == 200
        assert memory.bodies == 290_000

    played(scenario, memory=memory)


@pytest.mark.parametrize("path", [PREDICT, "/v1/nothing"])
@pytest.mark.parametrize("sized", [True, False])
def test_in_a_container_what_a_body_may_become_needs_room_too(path: str, sized: bool) -> None:
    memory = ClientMemory(10**9, room=BodyRoom(lambda: 42.0 * 2**20))

    async def scenario(client: Client) -> None:
        reply = await client.reply(client.ask(path, b" " * 120_000, sized=sized))
        assert reply.status == 413
        assert b"a body of 0.1 MB of JSON" in reply.body
        assert memory.room.take(500_000)
        reply = await client.reply(client.ask(path, b" " * 80_000, sized=sized))
        assert reply.status == (503 if sized or path == PREDICT else 400), "what is answered unread needs no room"
        memory.room.give(500_000)
        await client.reply(client.ask(path, b" " * 80_000, sized=sized))
        assert (memory.bodies, memory.room.reserved) == (0, 0)

    played(scenario, memory=memory)


@pytest.mark.parametrize("path", [PREDICT, "/v1/nothing"])
def test_long_heads_need_room_in_memory_too(path: str) -> None:
    """A thousand requests of a connection may wait for their bodies, each with a head of 32 KiB."""
    memory = ClientMemory(300_000)

    async def scenario(client: Client) -> None:
        fields = [[(b"content-type", b"%d" % number + b"x" * 10_000)] for number in range(50)]
        numbers = [client.ask(path, b"{", each, sized=False, ended=False) for each in fields]
        await asyncio.sleep(1)
        client.read()
        statuses = [client.replies.get(each, Reply()).status for each in numbers]
        assert statuses.count(503) > 20
        assert statuses.count(0) * 10_000 < memory.bodies
        client.transport.close()
        await asyncio.sleep(1)
        assert (memory.bodies, memory.unread) == (0, 0)

    played(scenario, memory=memory, application=_reads if path != PREDICT else None)


def test_what_is_held_is_given_back() -> None:
    memory = ClientMemory(10**6)

    async def scenario(client: Client) -> None:
        numbers = [client.ask(body=b"x" * 100_000, ended=False, sized=False) for _ in range(3)]
        assert memory.bodies > 200_000
        client.content(numbers[0], b"x")  # it is no JSON
        client.h2.reset_stream(numbers[1])
        client.push()
        assert (await client.reply(numbers[0])).status == 400
        client.transport.close()
        await asyncio.sleep(1)
        assert (memory.bodies, memory.unread) == (0, 0)

    world = played(scenario, memory=memory)
    assert sorted(code for _, code, *_ in world.told()) == ["400", "499", "499"]


def test_a_client_that_reads_nothing_gets_no_more_pages_than_there_is_memory_for() -> None:
    memory = ClientMemory(10**6)

    async def page(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 10_000})

    async def scenario(client: Client) -> None:
        client.h2.update_settings({4: 0})  # SETTINGS_INITIAL_WINDOW_SIZE
        for _ in range(900):
            number = client.h2.get_next_available_stream_id()
            client.h2.send_headers(number, [*HEAD.items()], end_stream=True)
        client.push()
        await asyncio.sleep(1)
        client.read()
        statuses = [reply.status for reply in client.replies.values()]
        assert statuses.count(200) < 150
        assert statuses.count(503) > 750
        assert memory.unread < 4 * 10**6  # of them 2 KiB for each request

        other = Client(client.world)
        other_reply = await other.reply(other.ask("/", b"", method="GET"), 1.0)
        assert (other_reply.status, len(other_reply.body)) == (200, 10_000)

    played(scenario, memory=memory, application=page)


# --- ASGI ---


def test_100_continue_is_sent_when_the_application_wants_the_body() -> None:
    async def scenario(client: Client) -> None:
        number = client.ask("/", b"x" * 10, [(b"expect", b"100-continue")], ended=False)
        assert client.replies.get(number, Reply()).interim == []
        reply = await client.reply(number)
        client.h2.end_stream(number)
        client.push()
        assert (await client.reply(number)).status == 200
        assert reply.interim == []  # for the body came at once

        number = client.send([*{**HEAD, b":method": b"POST"}.items(), (b"expect", b"100-continue")], ended=False)
        assert (await client.reply(number)).interim == [100]
        client.content(number, b"xyz")
        assert (await client.reply(number)).body == b"3"

    played(scenario, application=_reads)


async def _forbids(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 403, "headers": []})
    await send({"type": "http.response.body", "body": b"no"})


def test_an_early_response_ends_the_request() -> None:
    """RFC 9113, section 8.1: with NO_ERROR, and what still comes is dropped."""

    async def scenario(client: Client) -> None:
        number = client.ask("/", b"x" * 10, ended=False, sized=False)
        reply = await client.reply(number)
        assert (reply.status, reply.body, reply.ended, reply.reset) == (403, b"no", True, ErrorCode.NO_ERROR)
        assert (await client.reply(client.ask("/", b""))).status == 403

    played(scenario, application=_forbids)


_SIZED = [*{**HEAD, b":method": b"POST", b":path": b"/", b"content-length": b"10"}.items()]


@pytest.mark.parametrize("content", [[b"0123456789"], [b"01234", b"56789"], [b"0123456789", b""]])
def test_an_error_comes_after_a_short_body(content: list[bytes]) -> None:
    """Else a client whose body is on its way meets a stream that has ended, and some do not read why."""

    async def scenario(client: Client) -> None:
        number = client.send(_SIZED, ended=False)
        for piece in content:
            assert (await client.reply(number, 0.1)).status == 0
            client.h2.send_data(number, piece, end_stream=piece == content[-1])
            client.push()
        reply = await client.reply(number, 0.1)
        assert (reply.status, reply.body, reply.ended, reply.reset) == (403, b"no", True, None)

    played(scenario, application=_forbids)


@pytest.mark.parametrize("came", [b"", b"x"])
def test_a_short_body_that_does_not_come_before_an_error_is_given_up(came: bytes) -> None:
    memory = ClientMemory(10**6)

    async def scenario(client: Client) -> None:
        number = client.send(_SIZED, came, ended=False)
        reply = await client.reply(number, 2 * LIMITS.arrival_timeout_s + 1)
        assert (reply.status, reply.ended, memory.bodies) == (408, True, 0)
        expecting = client.send([*_SIZED, (b"expect", b"100-continue")], ended=False)
        assert (await client.reply(expecting, 0.1)).status == 403  # its body never comes

    played(scenario, application=_forbids, memory=memory)


def test_a_response_waits_for_its_reader() -> None:
    written = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(100):
            await send({"type": "http.response.body", "body": b"x" * 10_000, "more_body": True})
            written.append(number)
        await send({"type": "http.response.body"})

    async def scenario(client: Client) -> None:
        client.h2.update_settings({4: 0})  # SETTINGS_INITIAL_WINDOW_SIZE
        client.push()
        number = client.ask("/", b"", method="GET")
        reply = await client.reply(number)
        assert (reply.status, reply.body) == (200, b"")
        assert 6 <= len(written) < 10
        client.h2.update_settings({4: 65_535})
        client.push()
        for _ in range(100):
            reply = await client.reply(number, 0.1)
        assert (len(reply.body), reply.ended) == (10**6, True)

    played(scenario, application=application)


@pytest.mark.parametrize(
    ("messages", "status", "reset"),
    [
        ([{"type": "http.response.body"}], 500, None),
        ([], 500, None),
        ([{"type": "http.response.start", "status": 200, "headers": [(b"x", b"a\r\nb")]}], 500, None),
        (
            [
                {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]},
                {"type": "http.response.body", "body": b"x", "more_body": True},
                {"type": "http.response.body", "body": b"x"},
            ],
            200,
            ErrorCode.INTERNAL_ERROR,
        ),
    ],
    ids=["no start", "nothing", "line end", "another length"],
)
def test_an_application_that_breaks_the_rules(
    messages: list[Any], status: int, reset: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    async def scenario(client: Client) -> None:
        reply = await client.reply(client.ask("/", b"", method="GET"))
        assert (reply.status, reply.reset) == (status, reset)
        assert not client.goaways

    played(scenario, application=application)


def test_fields_of_a_connection_are_left_out_of_responses() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"Connection", b"close"), (b"Keep-Alive", b"timeout=5"), (b"X-Own", b"\xe4")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    async def scenario(client: Client) -> None:
        reply = await client.reply(client.ask("/", b"", method="GET"))
        assert reply.headers == {"date": "today", "x-own": "\xe4"}

    played(scenario, application=application)


# --- clients that go ---


def test_a_request_that_is_reset_is_cancelled() -> None:
    async def scenario(client: Client) -> None:
        blocking, number = client.ask(), client.ask()
        await asyncio.sleep(0.1)
        client.h2.reset_stream(number)
        client.push()
        assert (await client.reply(blocking)).status == 200

    world = played(scenario)
    assert [event.code for event in world.finished] == ["499", "200"]


def test_the_application_is_told_of_one_that_is_reset() -> None:
    told = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        told.append([(await receive())["type"] for _ in range(2)])

    async def scenario(client: Client) -> None:
        number = client.ask("/", b"", method="GET")
        await asyncio.sleep(0.1)
        client.h2.reset_stream(number)
        client.push()
        await asyncio.sleep(0.1)

    played(scenario, application=application)
    assert told == [["http.request", "http.disconnect"]]


@pytest.mark.parametrize("way", ["answers", "answers HEAD", "answers without the body", "rejects", "breaks the rules"])
def test_an_application_that_waits_for_the_end_of_its_request_is_told(way: str) -> None:
    """ASGI: `receive` returns http.disconnect once the response is complete. Else its task would wait for ever."""
    told, status = [], 403 if way == "rejects" else 200

    async def application(scope: Any, receive: Any, send: Any) -> None:
        async def ends() -> None:
            while (message := await receive())["type"] != "http.disconnect":
                pass
            told.append(message["type"])

        waits = asyncio.create_task(ends())
        await asyncio.sleep(0)
        length = [(b"content-length", b"3")] if way == "breaks the rules" else []
        await send({"type": "http.response.start", "status": status, "headers": length})
        try:
            await send({"type": "http.response.body", "body": b"done"})
        finally:
            await waits

    async def scenario(client: Client) -> None:
        whole = way != "answers without the body"
        number = client.ask("/", b"" if whole else b"x" * 10, ended=whole, method="HEAD" if "HEAD" in way else "POST")
        await asyncio.sleep(0.1)
        if way == "breaks the rules":
            client.h2.reset_stream(number)
            client.push()
            await asyncio.sleep(0.1)
        assert told == ["http.disconnect"]
        assert not client.world.state.tasks, "the application has ended"

    played(scenario, application=application)


def test_one_that_is_reset_in_the_same_packet_costs_no_call_of_the_application() -> None:
    calls = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        calls.append(scope)

    async def scenario(client: Client) -> None:
        for _ in range(100):
            number = client.h2.get_next_available_stream_id()
            client.h2.send_headers(number, [*HEAD.items()], end_stream=True)
            client.h2.reset_stream(number)
        client.push()
        await asyncio.sleep(1)

    played(scenario, application=application)
    assert not calls


def test_a_flood_of_resets_ends_the_connection() -> None:
    async def scenario(client: Client) -> None:
        for _ in range(5000):
            number = client.h2.get_next_available_stream_id()
            client.h2.send_headers(number, [*HEAD.items()], end_stream=True)
            client.h2.reset_stream(number)
        client.push()
        await asyncio.sleep(1)
        client.read()
        assert [each.error_code for each in client.goaways] == [ErrorCode.ENHANCE_YOUR_CALM]
        assert client.transport.closed

    played(scenario)


# --- for the server, a connection like others ---


def test_it_counts_as_the_connection_that_it_began_as() -> None:
    async def scenario(client: Client) -> None:
        world = client.world
        assert len(world.state.connections) == 2
        (mine,) = world.state.connections - {world.connection}
        assert mine.transport is client.transport
        client.transport.close()
        await asyncio.sleep(0.1)
        assert world.state.connections == {world.connection}

    played(scenario)


def test_where_there_is_no_room_it_gives_way_or_is_told_so() -> None:
    async def main() -> None:
        world = World(True, limits=replace(LIMITS, max_connections=1))
        idle = Client(world, world.transport)
        assert (await idle.reply(idle.ask())).status == 200

        busy = Client(world)
        await asyncio.sleep(0.1)
        idle.read()
        assert (idle.transport.closed, idle.goaways[0].error_code, idle.goaways[0].last_stream_id) == (True, 0, 1)

        number = busy.ask()
        rejected = Client(world)
        await asyncio.sleep(0.1)
        rejected.read()
        assert [(each.error_code, each.last_stream_id) for each in rejected.goaways] == [(0, 0)]
        assert rejected.transport.closed
        assert (await busy.reply(number)).status == 200

    run_in_fake_time(main())


async def _lingers(world: World) -> Client:
    """A connection that has ended for the server, and not for its client, which does not close."""
    client = Client(world)
    (mine,) = [each for each in world.state.connections if each.transport is client.transport]
    mine.end()
    await asyncio.sleep(0.1)
    assert (client.transport.closed, mine.may_bring_more, mine.is_unread) == (False, False, False)
    return client


def test_one_that_lingers_gives_way_first_and_at_once() -> None:
    """Its descriptor is another connection's then, whether or not its client reads."""

    async def main() -> None:
        world = World(True, limits=replace(LIMITS, max_connections=2))
        with ExitStack() as clients:
            connect = world.connect

            def connects() -> Any:
                connection, transport = connect()
                clients.enter_context(stays_open(transport))
                return connection, transport

            world.connect = connects  # type: ignore[method-assign] - of this world alone
            client = await _lingers(world)
            client.transport.unread = 10**6
            other = Client(world)
            assert client.transport.aborted
            assert (await other.reply(other.ask())).status == 200
            assert not world.transport.closed

    run_in_fake_time(main())


class _Calls:
    """Answers no call of gRPC."""

    def begin(self, connection: Http2Protocol, stream: Stream, *_: Any) -> None:
        connection.connection.reset(stream, ErrorCode.CANCEL)
        connection.flush()


@pytest.mark.parametrize(
    ("asked", "told_s"),
    [(["rest"], LIMITS.keep_alive_s), (["grpc"], 100.0), (["rest", "grpc"], 100.0), (["grpc", "rest"], 100.0)],
    ids=str,
)
def test_from_its_first_call_of_grpc_on_a_connection_has_the_times_of_grpc(asked: list[str], told_s: float) -> None:
    calls = GrpcOnRestPort(_Calls(), Http2Limits(), Times(age_s=100.0))

    async def scenario(client: Client) -> None:
        begun_s = fake_time()
        for kind in asked:
            content_type = b"application/grpc+proto" if kind == "grpc" else b"application/json"
            client.ask(headers=[(b"content-type", content_type)])
        while not client.goaways and fake_time() < begun_s + 1000:
            await asyncio.sleep(1.0)
            client.read()
        waited_s = fake_time() - begun_s
        assert 0.9 * told_s <= waited_s <= 1.1 * told_s if told_s == 100.0 else waited_s <= 3 * told_s

    played(scenario, grpc=calls)


def test_an_idle_one_ends_with_goaway() -> None:
    async def scenario(client: Client) -> None:
        assert (await client.reply(client.ask())).status == 200
        await client.reply(1, 3 * LIMITS.arrival_timeout_s)
        client.read()
        await client.reply(1, 3 * LIMITS.arrival_timeout_s)
        assert client.transport.closed
        assert [each.error_code for each in client.goaways] == [0, 0]

    played(scenario)


def test_who_was_answered_last_has_waited_least() -> None:
    """By this the server chooses which connection gives way; also where the answer came at once."""

    async def scenario(client: Client) -> None:
        (mine,) = client.world.state.connections - {client.world.connection}
        for pause_s in (1.0, 2.0):
            # 1. A request that takes a while.
            await asyncio.sleep(pause_s)
            asked_s, number = fake_time(), client.ask()
            assert mine.waits_since_s == float("inf")
            await client.reply(number)
            since_s = mine.waits_since_s
            assert asked_s < since_s <= fake_time()

            # 2. What is no request changes nothing. (Between two looks of the timer, which knows less.)
            await asyncio.sleep(0.01)
            client.h2.ping(b"12345678")
            client.push()
            assert mine.waits_since_s == since_s

            # 3. A request that is answered before its frames are read to the end.
            await asyncio.sleep(pause_s)
            number = client.ask(headers=[(b"x-%d" % n, b"") for n in range(200)])
            assert (client.replies[number].status, client.replies[number].ended) == (431, True)
            assert mine.waits_since_s == fake_time()

    played(scenario)


def test_a_server_that_drains_says_so_in_two_steps() -> None:
    """RFC 9113, section 6.8: what a client has sent before it read the first GOAWAY is answered."""

    async def scenario(client: Client) -> None:
        (mine,) = client.world.state.connections - {client.world.connection}
        mine.leave()
        await asyncio.sleep(0.99)
        late = client.ask()
        assert [each.last_stream_id for each in client.goaways] == [2**31 - 1]
        assert (mine.may_bring_more, mine.awaits_answer) == (True, True)
        await asyncio.sleep(0.02)
        dropped = client.ask()
        assert [each.last_stream_id for each in client.goaways] == [2**31 - 1, late]
        assert [(await client.reply(each)).status for each in (late, dropped)] == [200, 0]
        assert client.transport.closed

    played(scenario)


def test_it_does_so_when_no_request_is_under_way() -> None:
    """Some clients take nothing any more behind a GOAWAY."""

    async def scenario(client: Client) -> None:
        (mine,) = client.world.state.connections - {client.world.connection}
        first = client.ask()
        await asyncio.sleep(COMPUTE_S / 2)
        mine.leave()
        second = client.ask()
        assert (await client.reply(first, COMPUTE_S)).status == 200
        assert not client.goaways
        assert (await client.reply(second)).status == 200
        assert [each.last_stream_id for each in client.goaways] == [2**31 - 1, second]
        assert client.transport.closed

    played(scenario)


def test_a_client_that_takes_nothing_behind_a_goaway_gets_its_reply() -> None:
    """As those of the library h2 do, httpx among them: even a ping is an error of theirs."""

    async def scenario(client: Client) -> None:
        plain = Client(client.world, preface=False)
        plain.h2 = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        plain.h2.initiate_connection()
        plain.push()
        number = plain.ask()
        for each in client.world.state.connections - {client.world.connection}:
            each.leave()
        reply = await plain.reply(number, 2 * COMPUTE_S)
        assert (reply.status, reply.ended, bool(plain.goaways)) == (200, True, True)

    played(scenario)


def test_a_client_that_does_not_answer_the_last_call_is_not_waited_for() -> None:
    async def scenario(client: Client) -> None:
        (mine,) = client.world.state.connections - {client.world.connection}
        mine.leave()
        await asyncio.sleep(0.9)
        assert not client.transport.closed
        await asyncio.sleep(0.2)
        assert client.transport.closed

    played(scenario)


def test_what_is_rejected_has_no_content_for_head() -> None:
    """RFC 9110, section 9.3.2; the library h2 ends its connection where there is some."""

    async def scenario(client: Client) -> None:
        rejected = await client.reply(client.ask("/x#y", b"", method="HEAD"))
        assert (rejected.status, rejected.body) == (400, b"")
        assert (await client.reply(client.ask())).status == 200

    played(scenario)


def test_who_connects_while_the_server_is_about_to_drain_is_served() -> None:
    async def scenario(client: Client) -> None:
        client.world.connection._fast_path.leaving = True
        late = Client(client.world)
        assert (await late.reply(late.ask())).status == 200
        assert not late.goaways

    played(scenario)


def test_before_the_drain_idle_ones_end_and_others_are_told() -> None:
    async def scenario(idle: Client) -> None:
        busy = Client(idle.world)
        number = busy.ask()
        others = idle.world.state.connections - {idle.world.connection}
        for each in others:
            each.close_if_idle(1.0)
        idle.read()
        assert not idle.transport.closed  # it has just connected
        for each in others:
            each.close_if_idle()
        idle.read()
        assert idle.transport.closed
        assert (await busy.reply(number)).status == 200
        assert busy.goaways
        assert busy.transport.closed

    played(scenario)


def test_one_that_is_never_idle_is_shut_down_all_the_same() -> None:
    async def scenario(client: Client) -> None:
        (mine,) = client.world.state.connections - {client.world.connection}
        number = client.ask("/", b"x", ended=False, sized=False)
        mine.shutdown()
        reply = await client.reply(number, 3.0)
        assert (reply.ended, len(client.goaways), client.transport.closed) == (False, 2, False)
        client.content(number, b"x")
        assert (await client.reply(number, 1.0)).body == b"2"
        assert client.transport.closed

    played(scenario, application=_reads)


def test_of_one_that_was_shut_down_and_has_gone_no_timer_waits() -> None:
    async def scenario(client: Client) -> None:
        (mine,) = client.world.state.connections - {client.world.connection}
        number = client.ask("/", b"x", ended=False, sized=False)
        mine.shutdown()
        client.content(number, b"x")
        assert (await client.reply(number, 0.1)).body == b"2"
        client.transport.close()
        await asyncio.sleep(0.1)
        assert not [each for each in timers() if "ArrivalTimer" not in each]

    played(scenario, application=_reads)


def test_a_deadline_is_kept() -> None:
    async def scenario(client: Client) -> None:
        numbers = [client.ask(headers=[(b"x-request-timeout-ms", b"1500")]) for _ in range(100)]
        await client.reply(numbers[0], TIMEOUT_MS / 1e3)
        assert {client.replies[each].status for each in numbers} == {200, 504}

    world = played(scenario)
    assert all(isinstance(event, RequestFinished) for event in world.finished)
