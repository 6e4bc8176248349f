"""Sends malformed requests concurrently and checks the answers."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import grpc

from tests.every_protocol.own_words import foreign_words
from tests.hostile.wire_requests import GrpcRequest, Hostile, HttpRequest, as_bytes_on_the_wire
from tests.support.waiting import HANG_S

#: The allowed codes among server errors: not supported, overloaded, timed out, no version of HTTP that is spoken here.
_ALLOWED = {501, 503, 504, 505}
_FAULTS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS, grpc.StatusCode.CANCELLED}

#: Answers to bytes that are not HTTP: uvicorn closes the connection.
_HUNG_UP = "hung up"

#: What comes before the answer to `Expect: 100-continue`.
_GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass
class Tally:
    """Counts of codes by group of requests, and the answers that are not allowed."""

    codes: dict[str, Counter[str]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def count(self, request: Hostile, code: str, fault: bool, text: str = "") -> None:
        self.codes.setdefault(request.group, Counter())[code] += 1
        if fault:
            self.violations.append(f"{code} {text[:300]} for {request!r}"[:4000])

    @property
    def requests(self) -> int:
        return sum(codes.total() for codes in self.codes.values())


class Attack:
    """Requests to one server on the loopback interface.

    Args:
        tls: how its HTTP port is spoken to; requests that end with the end of the connection go without.
        key: sent by all of them in x-api-key.
    """

    def __init__(
        self,
        http_port: int,
        channel: grpc.aio.Channel,
        at_a_time: int = 16,
        *,
        tls: ssl.SSLContext | None = None,
        key: str = "",
    ) -> None:
        self.tally = Tally()
        self._port = http_port
        self._channel = channel
        self._at_a_time = at_a_time
        self._tls = tls
        self._credential = {"x-api-key": key} if key else {}

    async def send_all(self, requests: Iterable[Hostile]) -> None:
        line = iter(requests)

        async def work() -> None:
            for request in line:
                await self._send(request)

        async with asyncio.TaskGroup() as workers:
            for _ in range(self._at_a_time):
                workers.create_task(work())

    async def _send(self, request: Hostile) -> None:
        try:
            async with asyncio.timeout(HANG_S):
                if isinstance(request, HttpRequest):
                    await self._send_http(request)
                else:
                    await self._send_grpc(request)
        except TimeoutError:
            self.tally.count(request, "no answer", True)

    async def _send_http(self, request: HttpRequest) -> None:
        if request.raw is None:
            request = replace(request, headers={**request.headers, **self._credential})
        tls = self._tls if request.raw is None else None  # TLS has no end of one side alone
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=tls)
        except OSError as error:
            return self.tally.count(request, "no connection", True, str(error))
        try:
            writer.write(as_bytes_on_the_wire(request))
            if request.raw is not None:
                writer.write_eof()
            reply = await reader.read(1 << 20)
            if reply == _GO_ON:
                reply += await reader.read(1 << 20)
        except (ConnectionError, ssl.SSLError):
            reply = b""
        finally:
            writer.close()
        status = reply.removeprefix(_GO_ON)[9:12]
        if not status.isdigit():
            return self.tally.count(request, _HUNG_UP, request.raw is None, repr(reply))
        code = int(status)
        told = b"Traceback (most" in reply
        quotable = request.raw is None and "content-encoding" not in {name.lower() for name in request.headers}
        if code >= 400 and quotable:  # what an error text may quote of the request can be told from its own words
            told = told or bool(foreign_words(request.path, repr(reply), f"{request!r}"))
        return self.tally.count(request, str(code), told or (code >= 500 and code not in _ALLOWED), repr(reply))

    async def _send_grpc(self, request: GrpcRequest) -> None:
        try:
            if request.streamed:
                text = await self._stream(request)
            else:
                await self._channel.unary_unary(request.rpc)(request.body, metadata=tuple(self._credential.items()))
                text = ""
            code = grpc.StatusCode.OK
        except grpc.aio.AioRpcError as error:
            code, text = error.code(), error.details() or ""
        lost = code is grpc.StatusCode.UNAVAILABLE and "onnect" in text
        told = "Traceback (most" in text or "Internal error" in text
        if code is not grpc.StatusCode.OK:
            told = told or bool(foreign_words(request.rpc, text, f"{request!r}"))
        self.tally.count(request, code.name, lost or told or code in _FAULTS, text)

    async def _stream(self, request: GrpcRequest) -> str:
        """The replies, errors in them included."""
        call = self._channel.stream_stream(request.rpc)(metadata=tuple(self._credential.items()))
        await call.write(request.body)
        await call.done_writing()
        return repr([reply async for reply in call])
