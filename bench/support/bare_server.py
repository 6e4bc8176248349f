"""A server in a process of its own that answers every request at once: what the machine alone makes of a latency.

Asked beside another server, it tells a stall of that server from cores that others use: they share no interpreter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import cast

import httptools
import uvloop

_REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"


class _Answering(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._transport.write(_REPLY)


@contextmanager
def bare_server() -> Iterator[int]:
    """Yields its loopback port; it ends with the block."""
    context = get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(sending,), daemon=True)
    process.start()
    sending.close()
    try:
        yield receiving.recv()
    finally:
        process.terminate()
        process.join()


def _serve(port: Connection) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_answer(port))


async def _answer(port: Connection) -> None:
    server = await asyncio.get_running_loop().create_server(_Answering, "127.0.0.1", 0)
    port.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()
