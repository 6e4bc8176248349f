"""The trials of `ferry bench`: rates are tried one after another against one URL."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.bench.load_connection import BadReply, ServerReply, connect, write_request
from app.bench.open_loop import LoadTarget, OpenLoopResult, open_loop
from app.bench.rate_search import RateSearch
from app.bench.request_body import CannotMakeRequest, InferencePath, TargetUrl

#: The time-out of requests for metadata, before and between trials. Chosen.
_ASK_TIMEOUT_S = 30.0

#: The share of answered requests below which a server's queue grows, whatever p99 says so far. Chosen.
_KEEPS_UP = 0.9


@dataclass(frozen=True, slots=True)
class Trials:
    """The trials of one server. A good rate has p99 within the target, no failure, and nearly all requests answered.

    Attributes:
        body: the body to send; None makes a request of `rows` rows from the model's metadata.
        seconds: of the trial of each rate.
        tls: for a URL of https.
    """

    address: TargetUrl
    body: bytes | None
    headers: Mapping[str, str]
    rows: int
    connections: int
    target_p99_ms: float
    seconds: float
    tls: ssl.SSLContext | None = None

    async def search(
        self,
        first_rate: float,
        most_trials: int,
        before: Callable[[float], None],
        after: Callable[[OpenLoopResult], None],
    ) -> list[OpenLoopResult]:
        """Every rate that was tried, in that order.

        Args:
            before: called with each rate before it is tried, `after` with its result.

        Raises:
            CannotMakeRequest: there is nothing to send, the server rejects it, or nothing listens at the URL.
        """
        loads: list[OpenLoopResult] = []
        try:
            # 1. One request, which the server has to take.
            request = await self._request()
            rejection = await self._ask(request)
            if not 200 <= rejection.status < 300:
                made = "" if self.body is not None else ", made from the model's metadata (--body FILE sends another),"
                raise CannotMakeRequest(
                    f"The server rejects the request{made} with {rejection.status}: {_shown(rejection)}"
                )

            # 2. The rates.
            target = LoadTarget(self.address.host, self.address.port, self.connections, self.tls)
            search = RateSearch(first_rate, most_trials)
            while (rate := search.next_rate()) is not None:
                before(rate)
                load = await open_loop(target, [request], rate, self.seconds, seed=len(loads))
                search.record(rate, self.is_good(load))
                loads.append(load)
                after(load)
        except OSError as error:
            raise CannotMakeRequest(f"{self.address} cannot be reached: {_reason(error)}") from None
        return loads

    def is_good(self, load: OpenLoopResult) -> bool:
        keeps_up = len(load.latencies_s) >= _KEEPS_UP * load.intended
        return keeps_up and not load.failed and 1e3 * load.latency_s(0.99) <= self.target_p99_ms

    async def _request(self) -> bytes:
        path = self.address.path
        if self.body is not None:
            headers = {"Content-Type": "application/json", **self.headers}
            return write_request("POST", path, self._host, headers, self.body)
        inference = InferencePath(path)
        reply = await self._ask(write_request("GET", inference.metadata_path, self._host, self.headers))
        if reply.status != 200:
            raise CannotMakeRequest(
                f"{inference.metadata_path} has status {reply.status}, not metadata: {_shown(reply)}"
            )
        made = inference.make_body(reply.body, self.rows)
        return write_request("POST", path, self._host, {**made.headers, **self.headers}, made.content)

    async def _ask(self, request: bytes) -> ServerReply:
        connection = await connect(self.address.host, self.address.port, self.tls)
        try:
            async with asyncio.timeout(_ASK_TIMEOUT_S):
                return await connection.send(request)
        except (BadReply, TimeoutError) as error:
            raise CannotMakeRequest(f"No reply from {self._host}: {error or 'time is out'}") from None
        finally:
            connection.close()

    @property
    def _host(self) -> str:
        return f"{self.address.host}:{self.address.port}"


def _reason(error: OSError) -> str:
    """The text of an error without the address, which asyncio adds in its own form."""
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused; is a server listening there?"
    return error.strerror or str(error)


def _shown(reply: ServerReply) -> str:
    return reply.body[:200].decode(errors="replace")
