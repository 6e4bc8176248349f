"""Who sends a flood: a process of its own, so that it shares no interpreter with those who ask meanwhile."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from bench.flood_parts.floods import FLOODS, Flood

_READ_BYTES = 2**18


class Server(NamedTuple):
    """Its loopback ports. `authority`: the file of its certificates' authority, if it has TLS."""

    http: int
    grpc: int
    authority: Path | None = None

    def context(self, *, http2: bool = False) -> ssl.SSLContext | None:
        if self.authority is None:
            return None
        context = ssl.create_default_context(cafile=self.authority)
        context.set_alpn_protocols(["h2" if http2 else "http/1.1"])
        return context


@contextmanager
def flooding(name: str, server: Server, seconds: float) -> Iterator[None]:
    """The flood goes on during the block, and no longer than so many seconds.

    Raises RuntimeError if its process fails.
    """
    spawn = get_context("spawn")
    told: Any = spawn.Event()
    process = spawn.Process(target=_send, args=(name, server, seconds, told), daemon=True)
    process.start()
    try:
        told.wait(60)
        yield
    finally:
        process.join(seconds + 30)
        if process.exitcode is None:
            process.kill()
    if process.exitcode:
        raise RuntimeError(f"the flood {name!r} ended with {process.exitcode}")


def _send(name: str, server: Server, seconds: float, told: Any) -> None:
    flood = FLOODS[name]
    sends = flood.sends()

    async def main() -> None:
        told.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(send_one(flood, server, content) for content in sends))
                await asyncio.Event().wait()

    asyncio.run(main())


async def send_one(flood: Flood, server: Server, content: bytes) -> None:
    """Opens a connection, sends, and reads until the server closes it, as often as the flood says."""
    for _ in range(flood.times):
        with suppress(OSError):
            await _once(flood, server, content)


async def _once(flood: Flood, server: Server, content: bytes) -> None:
    port, context = server.grpc if flood.grpc else server.http, server.context(http2=flood.http2)
    names = {} if context is None else {"server_hostname": "localhost"}
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, **names)
    try:
        writer.write(content)
        if flood.reads:
            while await reader.read(_READ_BYTES):
                pass
        else:
            await asyncio.Event().wait()
    finally:
        writer.transport.abort()
