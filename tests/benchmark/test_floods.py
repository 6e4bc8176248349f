from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from bench.flood_parts.asking import Measured, tree_mib
from bench.flood_parts.floods import FLOODS, PREFACE, Flood
from bench.flood_parts.sending import Server, send_one
from bench.floods import chosen, line, passes, worst


def test_of_each_figure_the_worst_round_counts() -> None:
    assert worst([Measured(1.0, 40.0, 3.0, 0, 2.0), Measured(20.0, 2.0, 1.0, 1, 2.0)]) == Measured(
        20.0, 40.0, 3.0, 1, 2.0
    )


@pytest.mark.parametrize(
    ("measured", "within"),
    [
        (Measured(100.0, 250.0, 100.0, 0, 2.0), True),
        (Measured(101.0, 0.0, 0.0, 0, 2.0), False),
        (Measured(0.0, 251.0, 0.0, 0, 2.0), False),
        (Measured(0.0, 0.0, 101.0, 0, 2.0), False),
        (Measured(0.0, 0.0, 0.0, 1, 2.0), False),
    ],
)
def test_a_flood_fails_beyond_any_limit(measured: Measured, within: bool) -> None:
    assert passes(measured) is within
    assert ("FAIL" in line("one", "pings", measured)) is not within


def test_what_processes_share_is_counted_once() -> None:
    ballast = bytearray(64 * 2**20)
    alone_mib = tree_mib(os.getpid())
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.read(read, 1)
        os._exit(0)
    try:
        assert tree_mib(os.getpid()) < alone_mib + len(ballast) / 2**20 / 2
    finally:
        os.write(write, b"x")
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)


def test_floods_are_chosen_by_words() -> None:
    assert chosen("") == list(FLOODS)
    assert chosen("pings,settings") == ["pings", "settings"]


@pytest.mark.parametrize("name", [name for name, flood in FLOODS.items() if flood.http2])
def test_frames_of_http2_are_whole(name: str) -> None:
    """Else the server waits for the rest, and nothing is measured."""
    for content in set(FLOODS[name].sends()):
        frames = content[len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") :]
        assert content.startswith(PREFACE)
        assert sum(_sizes(frames)) == len(frames)


def _sizes(frames: bytes) -> Iterator[int]:
    at = 0
    while at < len(frames):
        size = 9 + int.from_bytes(frames[at : at + 3], "big")
        yield size
        at += size


def test_a_connection_is_opened_as_often_as_the_flood_says_and_read_to_its_end() -> None:
    async def main() -> None:
        came: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            came.append(await reader.readexactly(5))
            writer.write(b"reply")
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            await send_one(Flood(lambda: [b"hello"], times=3), Server(port, 0), b"hello")
        assert came == [b"hello"] * 3

    asyncio.run(main())
