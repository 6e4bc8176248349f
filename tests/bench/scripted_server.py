"""A server on loopback that answers as a test says."""

import asyncio
from collections.abc import Awaitable, Callable

from app.bench.load_connection import write_request

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REQUEST = write_request("POST", "/x", "127.0.0.1", {"A": "b"}, b"body")

Answer = Callable[[int, asyncio.StreamWriter], Awaitable[None]]


class Scripted:
    """A server that answers each request as `answer` says, given its number; `async with` gives its port."""

    def __init__(self, answer: Answer) -> None:
        self.requests: list[bytes] = []
        self._answer = answer
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                await self._answer(len(self.requests) - 1, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass


def always(*parts: bytes, close: bool = False) -> Answer:
    async def answer(number: int, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        if close:
            writer.close()

    return answer
