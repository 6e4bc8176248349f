"""The long run of rows counts what is wrong, against a server whose answers are known."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import numpy as np

from bench.row_answers.client import Tally, ask, message
from tests.row_corpus.asked import Asked
from tests.support.waiting import until


def question(*values: float) -> Asked:
    """To a model that doubles."""
    x = np.array(values, np.float32)
    return Asked("double", {"x": x}, {"y": 2 * x})


async def told(factor: int, status: str = "200 OK", pieces: int = 1) -> Tally:
    """What two callers of three requests each find of a server that multiplies by `factor`, in pieces of a reply."""

    ended = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal ended
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await answer(reader, writer)
        writer.close()
        ended += 1

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            values = json.loads(await reader.readexactly(length))["inputs"]["x"]
            content = json.dumps({"outputs": [factor * value for value in values]})
            reply = f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\n\r\n{content}".encode()
            step = -(-len(reply) // pieces)
            for at in range(0, len(reply), step):
                writer.write(reply[at : at + step])
                await writer.drain()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        asked = [(message(each), each) for each in (question(1), question(1, 2), question(3))]
        tally = await ask([port], [iter(asked), iter(asked)])
        await until(lambda: ended == 2)
        return tally


def sums(tally: Tally) -> tuple[int, int, int]:
    return tally.asked.total(), tally.wrong.total(), tally.refused.total()


def test_right_answers_are_no_faults_however_they_arrive() -> None:
    assert sums(asyncio.run(told(2))) == (6, 0, 0)
    assert sums(asyncio.run(told(2, pieces=7))) == (6, 0, 0)


def test_wrong_answers_with_200_are_counted_and_shown() -> None:
    tally = asyncio.run(told(3))
    assert sums(tally) == (6, 6, 0)
    assert "instead of" in tally.problems["double"][0]


def test_other_statuses_are_refusals() -> None:
    tally = asyncio.run(told(2, status="400 Bad Request"))
    assert sums(tally) == (6, 0, 6)
    assert "status 400" in tally.problems["double"][0]


def test_two_tallies_add_up() -> None:
    whole = Tally()
    for factor in (2, 3):
        whole.add(asyncio.run(told(factor)))
    assert sums(whole) == (12, 6, 0)
