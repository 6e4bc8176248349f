"""HTTP/1.1 for httpx: each request has a connection to itself, and connections are kept for the next ones.

httpx's own asks the system about each idle connection at each request: with many, almost half of a request's time.
"""

from __future__ import annotations

import asyncio

import h11
import httpx


class Http1Transport(httpx.AsyncBaseTransport):
    """To a port of this machine; answers are read whole, each within the client's timeout."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[_Connection] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        connection = self._kept() or _Connection(*await asyncio.open_connection("127.0.0.1", self._port))
        try:
            async with asyncio.timeout(request.extensions["timeout"]["read"]):
                response = await connection.answer(request, body)
        except TimeoutError as error:
            raise httpx.ReadTimeout("no answer in time") from error
        except h11.LocalProtocolError as error:
            raise httpx.LocalProtocolError(str(error)) from error
        except h11.RemoteProtocolError as error:
            raise httpx.RemoteProtocolError(str(error)) from error
        except OSError as error:
            raise httpx.ReadError(str(error)) from error
        finally:
            if connection.next_cycle():
                self._idle.append(connection)
            else:
                connection.writer.close()
        return response

    def _kept(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.reader.at_eof():
                return connection
            connection.writer.close()
        return None

    async def aclose(self) -> None:
        for connection in self._idle:
            connection.writer.close()


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._h11 = h11.Connection(h11.CLIENT)

    async def answer(self, request: httpx.Request, body: bytes) -> httpx.Response:
        head = h11.Request(method=request.method, target=request.url.raw_path, headers=request.headers.raw)
        parts = [self._h11.send(each) for each in (head, *([h11.Data(data=body)] if body else []), h11.EndOfMessage())]
        self.writer.write(b"".join(part for part in parts if part))
        status, headers, content = 0, [], bytearray()
        while not isinstance(event := self._h11.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                self._h11.receive_data(await self.reader.read(1 << 16))
            elif isinstance(event, h11.Response):
                status, headers = event.status_code, event.headers.raw_items()
            elif isinstance(event, h11.Data):
                content += event.data
        return httpx.Response(status, headers=headers, content=bytes(content))

    def next_cycle(self) -> bool:
        """Whether the connection can take another request, after an answer that was read to its end."""
        if {self._h11.our_state, self._h11.their_state} != {h11.DONE}:
            return False
        self._h11.start_next_cycle()
        return True
