"""Streams over real sockets, by both ways of HTTP to a model: in one process, and through frontends."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from tests.every_protocol.live import MAX_ROWS, Live
from tests.every_protocol.models import REJECTED
from tests.every_protocol.suite import running, runtime_in_place
from tests.frontends.test_processes import light
from tests.support.processes import ROOT, ServerProcess, serving
from tests.support.stream_client import StreamClient, connect
from tests.support.waiting import HANG_S

__all__ = ["running", "runtime_in_place"]  # fixtures

PATH = "/v1/models/m:predictStream"
SHUTTING_DOWN = {"error": "The server is shutting down"}


def doubled(*values: float) -> list[Any]:
    return [{"prediction": [2 * value] * 2} for value in values]


def play(running: tuple[asyncio.Runner, Live], scenario: Coroutine[Any, Any, None]) -> None:
    runner, served = running
    runner.run(asyncio.wait_for(scenario, HANG_S))
    assert served.waiting_rows() == 0


def test_each_line_is_answered_while_the_next_is_not_written_yet(running: tuple[asyncio.Runner, Live]) -> None:
    async def scenario() -> None:
        async with connect(str(running[1].http.base_url), PATH, "Expect: 100-continue") as client:
            assert (await client.head()).startswith(b"HTTP/1.1 100 ")
            head = (await client.head()).lower()
            assert head.startswith(b"http/1.1 200 ")
            assert b"content-type: application/x-ndjson" in head
            replies = client.replies()
            for n in range(3):
                client.say([n, n])
                assert await anext(replies) == doubled(n)
            client.say([3, 3], [REJECTED, 1], [4, 4])
            client.stop()
            assert await anext(replies) == [*doubled(3), {"error": "Line 5: features must not be 13"}, *doubled(4)]
            assert [lines async for lines in replies] == []
            await the_connection_is_of_use(client)

    play(running, scenario())


async def the_connection_is_of_use(client: StreamClient) -> None:
    body = b'{"instances": [[1, 1]]}'
    head = b"POST /v1/models/m:predict HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
    client.writer.write(head % len(body) + body)
    assert b" 200 " in await client.head()
    assert json.loads(await client.reader.readexactly(27)) == {"predictions": [[2.0, 2.0]]}


def test_many_lines_share_batches_and_keep_their_order(running: tuple[asyncio.Runner, Live]) -> None:
    many = 2000

    async def scenario() -> None:
        model = running[1].model
        model.calls.clear()
        async with connect(str(running[1].http.base_url), PATH) as client:

            async def write() -> None:
                for start in range(0, many, 100):
                    client.say(*[[100 + n, 1] for n in range(start, start + 100)])
                    await client.writer.drain()
                client.stop()

            async with running[1].held():
                writing = asyncio.create_task(write())
                await running[1].rows_wait(MAX_ROWS)
            await client.head()
            replies = [line async for lines in client.replies() for line in lines]
            await writing
        assert [reply["prediction"][0] for reply in replies] == [2 * (100 + n) for n in range(many)]
        assert max(map(len, model.calls)) == MAX_ROWS

    play(running, scenario())


def test_a_client_that_goes_leaves_nothing_behind(running: tuple[asyncio.Runner, Live]) -> None:
    async def scenario() -> None:
        live = running[1]
        gone = await live.gone()
        async with live.held():
            async with connect(str(live.http.base_url), PATH) as client:
                client.say([1, 1], [2, 2])
                await live.rows_wait(2)
            await live.rows_wait(0)
        while await live.gone() == gone:  # noqa: ASYNC110 - a frontend tells a little later
            await asyncio.sleep(0)

    play(running, scenario())


# --- processes that end ---


async def end_amid_a_stream(server: ServerProcess, path: str, line: object) -> None:
    async with connect(server.url, path) as client:
        await client.head()
        client.say(line)
        replies = client.replies()
        assert "prediction" in (await anext(replies))[0]
        server.terminate()
        assert [line async for lines in replies for line in lines] == [SHUTTING_DOWN]


def test_a_server_that_ends_says_so_as_the_last_line(tmp_path: Path) -> None:
    sample = json.loads((ROOT / "models/digits/samples.json").read_text())["samples"][0]
    shutil.copytree(ROOT / "models/digits/1", tmp_path / "models/digits/1")
    with serving(tmp_path / "models", tmp_path / "log") as server:
        asyncio.run(end_amid_a_stream(server, "/v1/models/digits:predictStream", sample["image"]))
        assert server.wait() == 0


def test_frontends_that_end_say_so_as_the_last_line(tmp_path: Path) -> None:
    with light(tmp_path) as server:
        asyncio.run(end_amid_a_stream(server, PATH, [1, 1]))
        assert server.wait() == 0
