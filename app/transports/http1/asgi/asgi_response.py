"""The response of an ASGI application, as HTTP/1.1."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from app.core.inference import Buffer
from app.transports.http.asgi import Header, Message
from app.transports.http.replies import header_lines
from app.transports.http1.head_parser import HeadParser
from app.transports.http1.status_lines import STATUS_LINES

_WITHOUT_BODY = frozenset({204, 304})


class ResponseWriter(Protocol):
    """The connection that the response is written to."""

    @property
    def may_stay(self) -> bool:
        """May the client send another request afterwards?"""

    def write(self, pieces: Sequence[Buffer]) -> None: ...
    async def writable(self) -> None:
        """Waits until the client has read most of what was written."""


class _End(Enum):
    """What tells the client that the body of a response is complete."""

    HEAD = "there is no body"
    LENGTH = "its length"
    CHUNK = "its last chunk"
    CONNECTION = "the end of the connection"


class AsgiResponse:
    """Writes the messages of an application.

    Args:
        headers: added to the application's.

    Attributes:
        gone: nobody reads it any more.
        begun: some of it was written.
        complete: all of it was written; then `keep_alive` says whether the connection stays.
    """

    def __init__(self, writer: ResponseWriter, head: HeadParser, headers: Sequence[Header]) -> None:
        self._writer = writer
        self._headers = headers
        self._http_1_0 = head.version == "1.0"
        self._head_only = head.method == b"HEAD"
        self._lines = b""  # of the head; they leave with the first piece of the body if that comes at once
        self._end = _End.LENGTH
        self._missing = 0  # bytes that Content-Length announced and the application has not sent
        self.keep_alive = head.keep_alive
        self.begun = False
        self.gone = False
        self.complete = False

    def send(self, message: Message) -> None:
        """Takes the next message.

        Raises:
            RuntimeError: the application broke the rules of ASGI or of HTTP.
        """
        kind = message["type"]
        if kind == "http.response.start" and not self.begun:
            self._start(message["status"], [*self._headers, *message.get("headers", ())])
        elif kind == "http.response.body" and self._lines and not self.complete:
            self._send_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"The ASGI message {kind} came at the wrong time")

    def _start(self, status: int, headers: Sequence[Header]) -> None:
        named = {name.lower(): value for name, value in headers}
        lines = header_lines(headers)
        if lines.count(b"\r") != len(headers) or lines.count(b"\n") != len(headers):
            raise RuntimeError("A header of a response has a line end")

        # 1. How the body ends (RFC 9112, section 6.3).
        length = named.get(b"content-length")
        if self._head_only or status in _WITHOUT_BODY:
            self._end = _End.HEAD
        elif length is not None:
            self._end, self._missing = _End.LENGTH, int(length)
        elif self._http_1_0:
            self._end = _End.CONNECTION
        else:
            self._end = _End.CHUNK
            lines += b"transfer-encoding: chunked\r\n"

        # 2. Whether another request may follow (section 9.3).
        closing = b"close" in named.get(b"connection", b"").lower()
        stays = self._writer.may_stay and self._end is not _End.CONNECTION
        self.keep_alive = self.keep_alive and stays and not closing
        if not self.keep_alive and not closing:
            lines += b"connection: close\r\n"
        elif self.keep_alive and self._http_1_0:
            lines += b"connection: keep-alive\r\n"
        self._lines = STATUS_LINES[status] + lines + b"\r\n"
        asyncio.get_running_loop().call_soon(self._flush)  # the application may wait for the client now

    def _flush(self) -> None:
        if not (self.begun or self.gone):
            self._write([])

    def _send_body(self, body: Buffer, *, more: bool) -> None:
        pieces: list[Buffer] = [body] if len(body) and self._end is not _End.HEAD else []
        if self._end is _End.LENGTH:
            self._missing -= len(body)
            if self._missing < 0 or (self._missing and not more):
                raise RuntimeError("The body of a response is not as long as its Content-Length")
        elif self._end is _End.CHUNK:
            pieces = [b"%x\r\n" % len(body), body, b"\r\n"] if pieces else []
            if not more:
                pieces.append(b"0\r\n\r\n")
        self.complete = not more
        self._write(pieces)

    def _write(self, pieces: list[Buffer]) -> None:
        """The head goes before the first of them."""
        if not self.begun:
            self.begun = True
            pieces.insert(0, self._lines)
        if pieces:
            self._writer.write(pieces)
