"""A client of streams over a real socket that writes and reads at the same time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit


class StreamClient:
    """One connection; the head of the request is sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def say(self, *lines: object) -> None:
        """Lines in one chunk."""
        body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        self.writer.write(b"%x\r\n%b\r\n" % (len(body), body))

    def stop(self) -> None:
        self.writer.write(b"0\r\n\r\n")

    async def head(self) -> bytes:
        return await self.reader.readuntil(b"\r\n\r\n")

    async def replies(self) -> AsyncIterator[list[Any]]:
        """The lines of each chunk, to the end of the stream."""
        while size := int(await self.reader.readline(), 16):
            chunk = await self.reader.readexactly(size + 2)
            yield [json.loads(line) for line in chunk.splitlines() if line]
        assert await self.reader.readline() == b"\r\n"


@asynccontextmanager
async def connect(url: str, path: str, *headers: str) -> AsyncIterator[StreamClient]:
    address = urlsplit(url)
    assert address.hostname
    assert address.port
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    lines = [f"POST {path} HTTP/1.1", f"Host: {address.netloc}", "Transfer-Encoding: chunked", *headers]
    writer.write("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
    try:
        yield StreamClient(reader, writer)
    finally:
        writer.close()
