"""What copies cost between the socket and a request's body, by processor time of the event loop's thread.

    python -m bench.body_copies [--rounds 5] [--bodies 400]

A bare server reads bodies of given sizes from 8 connections in two ways, in turn. `pieces`, as Ferry does: uvloop makes
an object of each piece, and the pieces are joined, so each byte is copied three times, by the kernel, by uvloop and by
the join. `in place`: the kernel writes into the body itself (asyncio's BufferedProtocol), but for the first piece,
which says how long it is. Memory that was freed is kept, as by a server. The client has a core of its own.

Predicted: 0.1 ms a MB for each copy saved, so `in place` takes half of the time. Came: 1.0 of it for 110 KB and 1 MB,
1.2 for 256 KiB, 0.85 to 1.0 for 8 MB: what was just read is copied from the cache, and a new body is set to zero first.
So Ferry keeps the pieces.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import threading
import time
from statistics import median
from typing import cast

import uvloop

from app.server.memory import keep_freed_memory
from bench.support.cores import for_server_and_load, on_cores
from bench.support.machine import machine_line

SIZES = (110_592, 262_144, 1_048_576, 8_388_608)
_CONNECTIONS = 8


class Pieces(asyncio.Protocol):
    """Joins the pieces of a body."""

    def __init__(self, size: int) -> None:
        self._size = self._missing = size
        self._pieces: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._missing -= len(data)
        if not self._missing:
            body, self._pieces, self._missing = b"".join(self._pieces), [], self._size
            self.transport.write(body[-1:])


class InPlace(asyncio.Protocol):
    """Reads the first piece, and has the rest read into the body."""

    def __init__(self, size: int) -> None:
        self._size = size

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if len(data) == self._size:
            self.complete(data)
        else:
            self.transport.set_protocol(_Rest(self, data, self._size))

    def complete(self, body: bytes | bytearray) -> None:
        self.transport.write(body[-1:])


class _Rest(asyncio.BufferedProtocol):
    def __init__(self, reader: InPlace, first: bytes, size: int) -> None:
        self._reader = reader
        self._body = bytearray(size)
        self._view = memoryview(self._body)
        self._view[: len(first)] = first
        self._at = len(first)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._view[self._at :]

    def buffer_updated(self, nbytes: int) -> None:
        self._at += nbytes
        if self._at == len(self._body):
            self._reader.transport.set_protocol(self._reader)
            self._reader.complete(self._body)


async def read(way: type[Pieces | InPlace], size: int, bodies: int) -> float:
    """Microseconds of this thread for a body."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: way(size), "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    begin_s = time.thread_time()
    await loop.run_in_executor(None, send, address, size, bodies)
    taken_s = time.thread_time() - begin_s
    server.close()
    await server.wait_closed()
    return 1e6 * taken_s / bodies


def send(address: tuple[str, int], size: int, bodies: int) -> None:
    """Each connection sends its share, the next body after the answer to the one before."""
    body = bytes(size)

    def one() -> None:
        with socket.create_connection(address) as connection:
            for _ in range(bodies // _CONNECTIONS):
                connection.sendall(body)
                connection.recv(1)

    threads = [threading.Thread(target=one) for _ in range(_CONNECTIONS)]
    with on_cores(for_server_and_load()[1]):
        for each in threads:
            each.start()
    for each in threads:
        each.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bodies", type=int, default=400, help="of each size and way in a round")
    options = parser.parse_args()
    keep_freed_memory()
    print(machine_line())
    with on_cores(for_server_and_load()[0]):
        for size in SIZES:
            ways = (Pieces, InPlace)
            runs = [[uvloop.run(read(way, size, options.bodies)) for way in ways] for _ in range(options.rounds)]
            pieces_us, in_place_us = (median(each) for each in zip(*runs, strict=True))
            ratio = median(one / other for other, one in runs)
            print(
                f"{size:9} bytes: pieces {pieces_us:6.0f} us, in place {in_place_us:6.0f} us; {ratio:.2f}", flush=True
            )


if __name__ == "__main__":
    main()
