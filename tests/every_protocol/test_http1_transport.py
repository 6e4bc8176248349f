"""What the client of HTTP/1.1 keeps, and lets go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from tests.every_protocol.http1_transport import Http1Transport
from tests.support.waiting import HANG_S


@asynccontextmanager
async def connections(answer: bytes) -> AsyncIterator[tuple[httpx.AsyncClient, list[asyncio.Event]]]:
    """A client of a server that sends `answer` to whatever comes; for each of its connections, whether it ended."""
    ended: list[asyncio.Event] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(end := asyncio.Event())
        while await reader.read(1 << 16):
            writer.write(answer)
        writer.close()
        end.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with httpx.AsyncClient(base_url="http://ferry", transport=Http1Transport(port)) as client:
            yield client, ended
        for each in ended:
            await asyncio.wait_for(each.wait(), HANG_S)


def test_a_connection_is_kept_for_the_next_request_and_ends_with_its_client() -> None:
    async def main() -> None:
        async with connections(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as (client, ended):
            assert [(await client.get("/")).text for _ in range(3)] == ["ok"] * 3
            assert [each.is_set() for each in ended] == [False]

    asyncio.run(main())


def test_a_server_that_does_not_answer_is_left_after_the_timeout() -> None:
    async def main() -> None:
        async with connections(b"") as (client, ended):
            with pytest.raises(httpx.ReadTimeout):
                await client.get("/", timeout=0.01)
            await asyncio.wait_for(ended[0].wait(), HANG_S)

    asyncio.run(main())
