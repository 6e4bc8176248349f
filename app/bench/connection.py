"""One HTTP/1.1 connection that carries one request at a time, with as little work as asyncio allows.

A load generator must cost less than what it measures: httpx takes longer for a request than a fast server.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import cast


@dataclass(frozen=True, slots=True)
class Reply:
    """Names of `headers` are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class BadReply(Exception):
    """The server does not speak HTTP/1.1, or closed the connection before its reply was complete."""


class Connection(asyncio.Protocol):
    """`send` takes the whole request, head and body; `closed` says that the next one needs another connection."""

    def __init__(self) -> None:
        self.closed = False
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._reply: asyncio.Future[Reply] | None = None

    async def send(self, request: bytes) -> Reply:
        """Raises BadReply. Cancelled, it closes the connection: the reply would be taken for the next one's."""
        if self.closed or self._transport is None:
            raise BadReply("The connection is closed")
        self._reply = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._reply
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._reply = None

    def close(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            reply = self._complete(ended=False)
        except ValueError as error:
            self._fail(f"The reply is not HTTP/1.1: {error}")
            return
        if reply is not None:
            self._finish(reply)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self.closed = True
        try:
            reply = self._complete(ended=True)
        except ValueError:
            reply = None
        if reply is None:
            self._fail("The server closed the connection")
        else:
            self._finish(reply)

    def _complete(self, ended: bool) -> Reply | None:
        """The reply that stands at the beginning of the buffer. Raises ValueError."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        status, headers = _read_head(bytes(self._buffer[:end]))
        start = end + 4
        if headers.get("transfer-encoding") == "chunked":
            body, rest = _read_chunks(self._buffer, start)
        elif "content-length" in headers:
            rest = start + int(headers["content-length"])
            body = bytes(self._buffer[start:rest]) if rest <= len(self._buffer) else None
        else:  # its end is that of the connection
            body, rest = (bytes(self._buffer[start:]), len(self._buffer)) if ended else (None, start)
        if body is None:
            return None
        del self._buffer[:rest]
        if headers.get("connection") == "close":
            self.close()
        return Reply(status, headers, body)

    def _finish(self, reply: Reply) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(reply)

    def _fail(self, text: str) -> None:
        self.close()
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(BadReply(text))


async def connect(host: str, port: int) -> Connection:
    """Raises OSError."""
    _, connection = await asyncio.get_running_loop().create_connection(Connection, host, port)
    return connection


def write_request(method: str, path: str, host: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    lines = {"Host": host, "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def _read_head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    if not first.startswith("HTTP/1.1 "):
        raise ValueError(f"it begins with {first[:40]!r}")
    pairs = (line.partition(":") for line in lines)
    return int(first[9:12]), {name.strip().lower(): value.strip() for name, _, value in pairs}


def _read_chunks(buffer: bytearray, at: int) -> tuple[bytes | None, int]:
    """The joined chunks, None while some are missing, and where the reply ends. Raises ValueError."""
    parts: list[bytes] = []
    while (end := buffer.find(b"\r\n", at)) >= 0:
        size = int(bytes(buffer[at:end]).partition(b";")[0], 16)
        at = end + 2 + size + 2
        if at > len(buffer):
            break
        if size == 0:
            return b"".join(parts), at
        parts.append(bytes(buffer[end + 2 : at - 2]))
    return None, at
