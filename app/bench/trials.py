"""One rate after the other against one address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from app.bench.body import Address, Endpoint, NoBody
from app.bench.connection import BadReply, Reply, connect, write_request
from app.bench.curve import Point
from app.bench.open_loop import OpenLoop, Target, open_loop, run_precisely
from app.bench.search import RateSearch

_ASK_TIMEOUT_S = 30.0

#: A server that answers fewer than this share of what it is sent has a growing queue, whatever p99 says so far.
_KEEPS_UP = 0.9


class Trials:
    """What is sent where, and what counts as good: p99 within the target, no failure, as many answers as requests.

    Args:
        body: None makes a request of `rows` rows from the model's metadata.

    Raises NoBody where the URL is none.
    """

    def __init__(
        self,
        url: str,
        *,
        body: bytes | None,
        headers: Mapping[str, str],
        rows: int,
        connections: int,
        target_p99_ms: float,
        seconds: float,
    ) -> None:
        self._address = Address.of(url)
        self._body, self._headers, self._rows = body, dict(headers), rows
        self._target = Target(self._address.host, self._address.port, connections)
        self._target_p99_ms, self._seconds = target_p99_ms, seconds

    def search(
        self, first_rate: float, most_trials: int, before: Callable[[float], None], after: Callable[[Point], None]
    ) -> list[Point]:
        """Every rate tried, in that order.

        Raises NoBody where there is nothing to send or the server rejects it, OSError where nobody listens.
        """
        return run_precisely(self._search(RateSearch(first_rate, most_trials), before, after))

    async def _search(
        self, search: RateSearch, before: Callable[[float], None], after: Callable[[Point], None]
    ) -> list[Point]:
        request = await self._request()
        rejection = await self._ask(request)
        if not 200 <= rejection.status < 300:
            raise NoBody(f"The server rejects the request with {rejection.status}: {_shown(rejection)}")
        points: list[Point] = []
        while (rate := search.next_rate()) is not None:
            before(rate)
            point = self._point(await open_loop(self._target, [request], rate, self._seconds, seed=len(points)))
            search.record(rate, point.good)
            points.append(point)
            after(point)
        return points

    def _point(self, load: OpenLoop) -> Point:
        p99_ms = 1e3 * load.latency_s(0.99)
        good = load.failed == 0 and p99_ms <= self._target_p99_ms and len(load.latencies_s) >= _KEEPS_UP * load.intended
        return Point(
            rate=load.rate,
            answered_rate=load.answered_rate,
            p50_ms=1e3 * load.latency_s(0.5),
            p99_ms=p99_ms,
            failed=load.failed,
            late_p99_ms=1e3 * load.late_p99_s,
            good=good,
            failures=", ".join(f"{count} x {what}" for what, count in load.failures.most_common(2)),
        )

    async def _request(self) -> bytes:
        address = self._address
        if self._body is not None:
            headers = {"Content-Type": "application/json", **self._headers}
            return write_request("POST", address.path, self._host, headers, self._body)
        endpoint = Endpoint(address.path)
        reply = await self._ask(write_request("GET", endpoint.metadata_path, self._host, self._headers))
        if reply.status != 200:
            raise NoBody(f"{endpoint.metadata_path} gives {reply.status} instead of metadata: {_shown(reply)}")
        made = endpoint.request(reply.body, self._rows)
        return write_request("POST", address.path, self._host, {**made.headers, **self._headers}, made.body)

    async def _ask(self, request: bytes) -> Reply:
        connection = await connect(self._target.host, self._target.port)
        try:
            async with asyncio.timeout(_ASK_TIMEOUT_S):
                return await connection.send(request)
        except (BadReply, TimeoutError) as error:
            raise NoBody(f"No reply from {self._host}: {error or 'time is out'}") from None
        finally:
            connection.close()

    @property
    def _host(self) -> str:
        return f"{self._address.host}:{self._address.port}"


def _shown(reply: Reply) -> str:
    return reply.body[:200].decode(errors="replace")
