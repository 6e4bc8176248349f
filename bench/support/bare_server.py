"""A server in a process of its own that answers every request at once: what the machine alone makes of a latency.

Asked beside another server, it tells a stall of that server from cores that others use: they share no interpreter. Over
TLS, it tells what that costs on this event loop, whoever serves.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
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
    with bare_process() as (port, _):
        yield port


@contextmanager
def bare_process(certificate: Path | None = None, key: Path | None = None) -> Iterator[tuple[int, int]]:
    """The same, over TLS if there is a certificate; yields its process number, too."""
    context = get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(sending, certificate, key), daemon=True)
    process.start()
    sending.close()
    try:
        yield receiving.recv(), cast(int, process.pid)
    finally:
        process.terminate()
        process.join()


def _serve(port: Connection, certificate: Path | None, key: Path | None) -> None:
    context = None
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_answer(port, context))


async def _answer(port: Connection, context: ssl.SSLContext | None) -> None:
    server = await asyncio.get_running_loop().create_server(_Answering, "127.0.0.1", 0, ssl=context)
    port.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()
