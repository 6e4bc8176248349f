"""The trials of `ferry bench`: rates are tried one after another against one URL."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.bench.curve import RatePoint
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
        self, first_rate: float, most_trials: int, before: Callable[[float], None], after: Callable[[RatePoint], None]
    ) -> list[RatePoint]:
        """Every rate that was tried, in that order.

        Args:
            before: called with each rate before it is tried, `after` with its result.

        Raises:
            CannotMakeRequest: there is nothing to send, the server rejects it, or nothing listens at the URL.
        """
        try:
            return await self._search(first_rate, most_trials, before, after)
        except OSError as error:
            raise CannotMakeRequest(f"{self.address} cannot be reached: {_reason(error)}") from None

    async def _search(
        self, first_rate: float, most_trials: int, before: Callable[[float], None], after: Callable[[RatePoint], None]
    ) -> list[RatePoint]:
        request = await self._request()
        rejection = await self._ask(request)
        if not 200 <= rejection.status < 300:
            made = "" if self.body is not None else ", made from the model's metadata (--body FILE sends another),"
            raise CannotMakeRequest(
                f"The server rejects the request{made} with {rejection.status}: {_shown(rejection)}"
            )
        target = LoadTarget(self.address.host, self.address.port, self.connections, self.tls)
        search = RateSearch(first_rate, most_trials)
        points: list[RatePoint] = []
        while (rate := search.next_rate()) is not None:
            before(rate)
            point = self._point(await open_loop(target, [request], rate, self.seconds, seed=len(points)))
            search.record(rate, point.good)
            points.append(point)
            after(point)
        return points

    def _point(self, load: OpenLoopResult) -> RatePoint:
        p99_ms = 1e3 * load.latency_s(0.99)
        good = load.failed == 0 and p99_ms <= self.target_p99_ms and len(load.latencies_s) >= _KEEPS_UP * load.intended
        return RatePoint(
            rate=load.rate,
            answered_rate=load.answered_rate,
            p50_ms=1e3 * load.latency_s(0.5),
            p99_ms=p99_ms,
            failed=load.failed,
            late_p99_ms=1e3 * load.late_p99_s,
            good=good,
            failures=", ".join(f"{count} x {what}" for what, count in load.failures.most_common(2)),
            held_back=load.held_back / max(1, load.intended),
        )

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
