"""HTTP/2 for httpx: requests of one connection are answered in any order, and one that is cancelled is reset.

httpx's own waits for the answers of a connection in the order of their requests.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h2.events
import httpx
from h2.errors import ErrorCodes

from tests.transports.http2.h2_client import client_connection


class Http2Transport(httpx.AsyncBaseTransport):
    """With prior knowledge."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: _Connection | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        if self._connection is None or self._connection.over:
            _, self._connection = await asyncio.get_running_loop().create_connection(
                _Connection, "127.0.0.1", self._port
            )
        return await self._connection.answer(request, body)

    async def aclose(self) -> None:
        if self._connection is not None:
            self._connection.transport.close()


class _Answer:
    def __init__(self) -> None:
        self.done: asyncio.Future[httpx.Response] = asyncio.get_running_loop().create_future()
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""


class _Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self) -> None:
        self.over = False
        self._h2 = client_connection()
        self._answers: dict[int, _Answer] = {}
        self._news = asyncio.Event()

    async def answer(self, request: httpx.Request, body: bytes) -> httpx.Response:
        number = self._h2.get_next_available_stream_id()
        answer = self._answers[number] = _Answer()
        kept = [(name.lower(), value) for name, value in request.headers.raw if name.lower() not in _LEFT_OUT]
        pseudo = [
            (b":method", request.method.encode()),
            (b":scheme", b"http"),
            (b":path", request.url.raw_path),
            (b":authority", request.url.netloc),
        ]
        self._h2.send_headers(number, [*pseudo, *kept], end_stream=not body)
        try:
            await self._send(number, body, answer)
            self._flush()
            return await answer.done
        finally:
            if not answer.done.done() or answer.done.cancelled():
                self._h2.reset_stream(number, ErrorCodes.CANCEL)
                self._flush()
            del self._answers[number]

    async def _send(self, number: int, body: bytes, answer: _Answer) -> None:
        while body and not answer.done.done():
            size = min(len(body), self._h2.local_flow_control_window(number), self._h2.max_outbound_frame_size)
            if size:
                self._h2.send_data(number, body[:size], end_stream=size == len(body))
                body = body[size:]
            else:
                self._flush()
                self._news.clear()
                await self._news.wait()

    def _flush(self) -> None:
        self.transport.write(self._h2.data_to_send())

    # --- asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._h2.initiate_connection()
        self._flush()

    def data_received(self, data: bytes) -> None:
        for event in self._h2.receive_data(data):
            self._note(event)
        self._news.set()
        self._flush()

    def _note(self, event: Any) -> None:
        self.over |= isinstance(event, h2.events.ConnectionTerminated)
        answer = self._answers.get(getattr(event, "stream_id", None) or 0)
        if answer is None or answer.done.done():
            return
        if isinstance(event, h2.events.ResponseReceived):
            (_, status), *answer.headers = event.headers
            answer.status = int(status)
        elif isinstance(event, h2.events.DataReceived):
            answer.body += event.data
            self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            answer.done.set_result(httpx.Response(answer.status, headers=answer.headers, content=answer.body))
        elif isinstance(event, h2.events.StreamReset):
            answer.done.set_exception(httpx.RemoteProtocolError(f"reset with {event.error_code!r}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.over = True
        for answer in self._answers.values():
            if not answer.done.done():
                answer.done.set_exception(httpx.RemoteProtocolError(f"the connection was lost: {exc}"))
        self._news.set()


#: Of HTTP/1.1 alone, or said by :authority.
_LEFT_OUT = {b"connection", b"host", b"transfer-encoding"}
