"""The asyncio client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType

import httpx
from tenacity import AsyncRetrying

from ferry_client.arrays import Array, Inputs
from ferry_client.errors import ServingError
from ferry_client.exchange import Exchange, Request, Response, Result
from ferry_client.models import ModelMetadata, ModelSpec, ModelStatus
from ferry_client.retries import WORTHWHILE, Deadline, exhausted, pause_s
from ferry_client.transport import LIMITS, ProtocolName, Target, failure, received


class AsyncClient:
    """As Client, for asyncio: what it says there holds here. One client serves any number of calls at once."""

    def __init__(
        self,
        url: str,
        *,
        protocol: ProtocolName = "v2",
        timeout_s: float = 30.0,
        attempts: int = 10,
        http: httpx.AsyncClient | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._target = Target(url, protocol, timeout_s, attempts, clock)
        self._http = http or httpx.AsyncClient(limits=LIMITS)
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
        deadline = self._target.deadline(timeout_s)
        core = self._target.core
        call = core.predict(ModelSpec(model, str(version), signature), inputs, outputs, deadline.left_s())
        return await self._run(call, deadline)

    async def metadata(
        self, model: str, *, signature: str = "", version: int | str = "", timeout_s: float | None = None
    ) -> ModelMetadata:
        call = self._target.core.metadata(ModelSpec(model, str(version), signature))
        return await self._run(call, self._target.deadline(timeout_s))

    async def models(self, *, timeout_s: float | None = None) -> list[ModelStatus]:
        return await self._run(self._target.core.models(), self._target.deadline(timeout_s))

    async def ready(self, model: str = "", *, version: int | str = "", timeout_s: float | None = None) -> bool:
        """As Client.ready."""
        return await self._run(
            self._target.core.ready(ModelSpec(model, str(version))), self._target.deadline(timeout_s)
        )

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
        attempts = self._target.attempts if request.retried else 1
        stop = exhausted(deadline, attempts)
        retrying = AsyncRetrying(retry=WORTHWHILE, wait=pause_s, stop=stop, sleep=self._sleep, reraise=True)
        return await retrying(self._send_once, request, deadline)

    async def _send_once(self, request: Request, deadline: Deadline) -> Response:
        try:
            async with asyncio.timeout(deadline.left_s()):
                reply = await self._http.send(self._target.outgoing(self._http, request, deadline))
        except TimeoutError as error:
            raise deadline.exceeded() from error
        except httpx.RequestError as error:
            raise failure(error, deadline) from error
        return received(reply, reply.content)
