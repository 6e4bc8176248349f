"""What uvicorn answers on a connection of ours, and what happens where uvicorn lacks what that needs."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import nullcontext
from typing import Any

import httpx
import pytest
import uvicorn

from app.transports.http1 import uvicorn_adapter
from app.transports.http1.fast_path import FastPath
from app.transports.http1.uvicorn_adapter import DrainingServer, missing_names, uvicorn_config
from tests.support.fakes import run_in_fake_time
from tests.transports.http1.test_connection import COMPUTE_S, PREDICT, ROW, World, played, request

READY = request("/v2/models/m/ready", b"", method="GET")
CHUNKED = {"Content-Length": "", "Transfer-Encoding": "chunked"}


def test_this_version_of_uvicorn_has_what_connections_need() -> None:
    assert missing_names() == []


def test_uvicorn_gives_the_connection_back_after_its_response() -> None:
    async def main() -> None:
        world = World(True)
        await world.hear(READY)
        assert repr(world.connection) == "<HttpConnection relaying to uvicorn, 0 replies>"
        assert repr(world.connection._relay) == "<UvicornRelay 1 requests, 1 read, 0 answered>"
        await asyncio.sleep(0.1)
        assert repr(world.connection) == "<HttpConnection idle, 0 replies>"
        writes = world.transport.writes
        await world.hear(request(), 0.1)
        assert repr(world.connection) == "<HttpConnection answering, 0 replies>"
        await asyncio.sleep(COMPUTE_S)
        assert repr(world.connection) == "<HttpConnection idle, 1 replies>"
        assert world.transport.writes == writes + 1

    run_in_fake_time(main())


@pytest.mark.parametrize(
    "begin",
    [b"POST /v1/models/m:predict HTTP/1.1\r\nX: ", request(body=b"0\r\nX: ", headers=CHUNKED), b"GET /" + b"x" * 70000],
)
def test_a_head_without_end_is_rejected(begin: bytes) -> None:
    world = played(True, [begin, *[b"a" * 2**16] * 17])
    assert [status for status, _, _ in world.replies()] == [431]
    assert world.transport.closed


def test_long_bodies_and_many_heads_are_no_long_head() -> None:
    chunk = b"10000\r\n" + b" " * 2**16 + b"\r\n"
    begin = request("/v1/nothing", b"", CHUNKED)
    world = played(True, [begin, *[chunk] * 20, b"0\r\n\r\n", 0.1, READY * 20000, 0.1])
    assert [status for status, _, _ in world.replies()] == [400] + [200] * 20000


def test_nothing_is_written_to_a_client_that_left_while_it_pipelined() -> None:
    """uvicorn tells only the last of pipelined requests that the client left."""

    async def main() -> None:
        world = World(True)
        with_body = request(body=b"1b\r\n" + json.dumps(ROW).encode() + b"\r\n0\r\n\r\n", headers=CHUNKED)
        await world.hear(with_body + with_body, 0.1)
        world.transport.close()
        await asyncio.sleep(4 * COMPUTE_S)
        assert not world.replies()

    run_in_fake_time(main())


def test_it_keeps_the_connection_until_the_body_is_read_too() -> None:
    async def main() -> None:
        world = World(True)
        await world.hear(request("/v1/nothing", b"5\r\nhello\r\n", CHUNKED), 0.1)
        assert [status for status, _, _ in world.replies()] == [400]
        assert repr(world.connection._relay) == "<UvicornRelay 1 requests, 0 read, 1 answered>"
        await world.hear(b"0\r\n\r\n")
        assert repr(world.connection) == "<HttpConnection idle, 0 replies>"
        await world.hear(request(), 2 * COMPUTE_S)
        assert [status for status, _, _ in world.replies()] == [400, 200]

    run_in_fake_time(main())


def test_it_answers_the_requests_that_arrive_behind_an_unusual_one() -> None:
    async def main() -> None:
        world = World(True)
        await world.hear(READY + request() + READY, 2 * COMPUTE_S, request(), 2 * COMPUTE_S)
        assert [status for status, _, _ in world.replies()] == [200] * 4
        assert repr(world.connection) == "<HttpConnection idle, 1 replies>"
        assert world.transport.reading

    run_in_fake_time(main())


def test_its_timer_for_idle_connections_has_no_effect_after_that() -> None:
    async def main() -> None:
        world = World(True)
        await world.hear(READY, 4.0, request(), 4.0)  # uvicorn's time is over after 5 s
        assert not world.transport.closed
        await world.hear(READY, 4.9)
        assert not world.transport.closed
        await asyncio.sleep(0.2)
        assert world.transport.closed

    run_in_fake_time(main())


def test_after_a_parse_error_the_connection_stays_with_uvicorn() -> None:
    async def main() -> None:
        world = World(True)
        await world.hear(READY, 0.1, b"\x16\x03\x01\x02", 0.1)  # TLS where none is spoken
        assert [status for status, _, _ in world.replies()] == [200, 400]
        assert world.connection._relay is None  # it is freed with the connection
        assert world.transport.closed

    run_in_fake_time(main())


def test_a_head_that_never_ends_is_left_to_uvicorn() -> None:
    async def main() -> None:
        world = World(True)
        await world.hear(b"POST / HTTP/1.1\r\n")
        assert repr(world.connection) == "<HttpConnection reading a head, 0 replies>"
        for number in range(70):
            await world.hear(b"X-%d: %s\r\n" % (number, b"x" * 1000))
        assert repr(world.connection) == "<HttpConnection relaying to uvicorn, 0 replies>"

    run_in_fake_time(main())


def test_a_connection_tells_what_it_reads() -> None:
    async def main() -> None:
        world = World(True)
        await world.hear(request()[:-3])
        assert repr(world.connection) == "<HttpConnection reading a body, 0 replies>"
        await world.hear(request()[-3:] + b"more")
        assert repr(world.connection) == "<HttpConnection answering, 0 replies, 4 bytes behind>"
        assert not world.transport.reading
        await asyncio.sleep(2 * COMPUTE_S)
        assert repr(world.connection) == "<HttpConnection relaying to uvicorn, 1 replies>"  # "more" is no method
        assert world.transport.closed

    run_in_fake_time(main())


def test_a_server_that_stops_closes_idle_connections_and_lets_uvicorn_end_its_response() -> None:
    async def main() -> None:
        world = World(True)
        other, transport = world.connect()
        await world.hear(request(headers={"Content-Encoding": "identity"}), 0.1)
        assert len(world.state.connections) == 3  # uvicorn's protocol for the unusual request is one of them
        for connection in list(world.state.connections):
            connection.shutdown()
        assert transport.closed
        assert not world.transport.closed
        await asyncio.sleep(2 * COMPUTE_S)
        ((status, headers, _),) = world.replies()
        assert (status, headers["connection"]) == (200, "close")
        assert not world.state.connections
        assert repr(other) == "<HttpConnection idle, 0 replies>"

    run_in_fake_time(main())


@pytest.mark.parametrize("lacking", ["no protocol", "other arguments", "no attribute"])
def test_without_what_it_needs_uvicorn_answers_everything(
    lacking: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real: Any = uvicorn_adapter.HttpToolsProtocol
    name, replacement = {
        "no protocol": ("HttpToolsProtocol", None),
        "other arguments": ("HttpToolsProtocol", type("Other", (real,), {"__init__": _other})),
        "no attribute": ("ServerState", type("Other", (), {"connections": set(), "tasks": set()})),
    }[lacking]
    monkeypatch.setattr(uvicorn_adapter, name, replacement)

    async def main() -> None:
        world = World(True)
        fast_path = FastPath(world._find)
        server = _Server(uvicorn_config(world._application, fast_path, "127.0.0.1", 0), Drained())
        server.config.lifespan = "off"
        with socket.create_server(("127.0.0.1", 0)) as listener:
            serving = asyncio.create_task(server.serve([listener.dup()]))
            port = listener.getsockname()[1]
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                reply = await client.post("/v1/models/m:nothing", json=ROW)
            assert reply.status_code == 400
            server.should_exit = True
            await serving
        assert fast_path.parsed(b"") is None
        assert not fast_path._parsed

    asyncio.run(main())
    assert "all requests go through ASGI" in caplog.text


def _other(self: Any, something_else: int) -> None: ...


class Drained:
    failure = ""

    async def drain(self) -> bool:
        return True

    def abandon(self) -> None: ...


class _Server(DrainingServer):
    """Leaves the signals to pytest."""

    def capture_signals(self) -> Any:
        return nullcontext()


def test_a_server_without_its_methods_says_that_nothing_is_drained(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(uvicorn.Server, "on_tick")
    DrainingServer(uvicorn.Config("app:app"), Drained())
    assert "has no Server.on_tick; nothing is drained" in caplog.text


def test_json_is_read_the_same_by_relay() -> None:
    """A whole request in single bytes, by chunks: uvicorn gets every byte since its beginning."""

    async def main() -> None:
        world = World(True)
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(json.dumps(ROW)), json.dumps(ROW).encode())
        for byte in request(PREDICT, body, CHUNKED):
            await world.hear(bytes([byte]))
        await asyncio.sleep(2 * COMPUTE_S)
        ((status, _, content),) = world.replies()
        assert (status, json.loads(content)) == (200, {"predictions": [[2.0, 4.0]]})

    run_in_fake_time(main())
