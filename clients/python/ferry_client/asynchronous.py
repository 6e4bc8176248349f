"""The asyncio client."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType

import httpx

from ferry_client.arrays import Array, Inputs
from ferry_client.errors import ServingError
from ferry_client.exchange import Exchange, Request, Response, Result
from ferry_client.models import ModelMetadata, ModelSpec, ModelStatus
from ferry_client.retries import Deadline, pause_before_retry_s
from ferry_client.transport import LIMITS, ProtocolName, ServerEndpoint, failure, received


class AsyncClient:
    """As Client, for asyncio, with the same arguments. One client runs any number of calls at once."""

    def __init__(
        self,
        url: str,
        *,
        protocol: ProtocolName = "v2",
        timeout_s: float = 30.0,
        attempts: int = 10,
        tls: ssl.SSLContext | None = None,
        credential: str = "",
        http: httpx.AsyncClient | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if tls is not None and http is not None:
            raise ValueError("tls goes without http: give an httpx client of your own this context as `verify`")
        self._server = ServerEndpoint(url, protocol, timeout_s, attempts, credential=credential, clock=clock)
        self._http = http or httpx.AsyncClient(limits=LIMITS, verify=tls or True)
        self._owns_http = http is None
        self._sleep = sleep

    async def predict(
        self,
        model: str,
        inputs: Inputs,
        *,
        outputs: Sequence[str] = (),
        signature: str = "",
        version: int | str = "",
        timeout_s: float | None = None,
    ) -> dict[str, Array]:
        """As Client.predict."""
        deadline = self._server.deadline(timeout_s)
        calls = self._server.calls
        call = calls.predict(ModelSpec(model, str(version), signature), inputs, outputs, deadline.left_s())
        return await self._run(call, deadline)

    async def metadata(
        self, model: str, *, signature: str = "", version: int | str = "", timeout_s: float | None = None
    ) -> ModelMetadata:
        call = self._server.calls.metadata(ModelSpec(model, str(version), signature))
        return await self._run(call, self._server.deadline(timeout_s))

    async def models(self, *, timeout_s: float | None = None) -> list[ModelStatus]:
        return await self._run(self._server.calls.models(), self._server.deadline(timeout_s))

    async def ready(self, model: str = "", *, version: int | str = "", timeout_s: float | None = None) -> bool:
        """As Client.ready."""
        return await self._run(
            self._server.calls.ready(ModelSpec(model, str(version))), self._server.deadline(timeout_s)
        )

    def __repr__(self) -> str:
        return f"<AsyncClient {self._server}>"

    async def close(self) -> None:
        if self._owns_http:
            await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, exchange: Exchange[Result], deadline: Deadline) -> Result:
        try:
            request = next(exchange)
            while True:
                try:
                    response = await self._send(request, deadline)
                except ServingError as error:
                    request = exchange.throw(error)
                else:
                    request = exchange.send(response)
        except StopIteration as end:
            result: Result = end.value
            return result

    async def _send(self, request: Request, deadline: Deadline) -> Response:
        attempts = self._server.attempts if request.retried else 1
        attempt = 1
        while True:
            try:
                return await self._send_once(request, deadline)
            except ServingError as error:
                pause_s = pause_before_retry_s(error, attempt, attempts, deadline)
                if pause_s is None:
                    raise
            await self._sleep(pause_s)
            attempt += 1

    async def _send_once(self, request: Request, deadline: Deadline) -> Response:
        try:
            async with asyncio.timeout(deadline.left_s()):
                reply = await self._http.send(self._server.outgoing(self._http, request, deadline))
        except TimeoutError as error:
            raise deadline.exceeded() from error
        except httpx.RequestError as error:
            raise failure(error, deadline) from error
        return received(reply, reply.content)
