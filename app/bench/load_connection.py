"""The connection of a load generator: HTTP/1.1, one request at a time, with as little work as asyncio allows.

A load generator must cost less than what it measures: httpx takes longer for a request than a fast server.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import httptools


@dataclass(frozen=True, slots=True)
class ServerReply:
    """A reply of the server. Names of `headers` are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class BadReply(Exception):
    """The server does not speak HTTP/1, or closed the connection before its reply was complete."""


class LoadConnection(asyncio.Protocol):
    """A connection. `send` takes the whole request, head and body. If `closed`, another connection is needed.

    Its `on_...` methods are called by httptools' parser.
    """

    def __init__(self) -> None:
        # The connection.
        self.closed = False
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)

        # The reply that is being read.
        self._waiter: asyncio.Future[ServerReply] | None = None
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._ends_with_connection = False

    async def send(self, request: bytes) -> ServerReply:
        """Send a request and read its reply.

        If cancelled, it closes the connection: the next request would get this one's reply.

        Raises:
            BadReply: there is no complete reply.
        """
        if self.closed or self._transport is None:
            raise BadReply("The connection is closed")
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._waiter
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._waiter = None

    def close(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"The reply is not HTTP/1: {error}")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self.closed = True
        if self._ends_with_connection:
            self._finish()
        else:
            self._fail("The server closed the connection")

    # --- the parser ---

    def on_message_begin(self) -> None:
        self._headers, self._body = {}, []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        framed = "content-length" in self._headers or "transfer-encoding" in self._headers
        self._ends_with_connection = not framed and self._parser.get_status_code() >= 200

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:  # an interim reply, such as 100 Continue: the final one follows
            return
        if not self._parser.should_keep_alive():
            self.close()
        self._finish()

    def _finish(self) -> None:
        self._ends_with_connection = False
        if self._waiter is None or self._waiter.done():  # a reply without a request
            self.close()
            return
        self._waiter.set_result(ServerReply(self._parser.get_status_code(), self._headers, b"".join(self._body)))

    def _fail(self, text: str) -> None:
        self.close()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(BadReply(text))


async def connect(host: str, port: int, tls: ssl.SSLContext | None = None) -> LoadConnection:
    """A new connection. Raises OSError, also for errors of TLS."""
    _, connection = await asyncio.get_running_loop().create_connection(LoadConnection, host, port, ssl=tls)
    return connection


def write_request(method: str, path: str, host: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    lines = {"Host": host, "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body
