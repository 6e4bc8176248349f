"""`ferry bench` without its command line: rates are tried one after the other against one URL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from app.bench.curve import RatePoint
from app.bench.load_connection import BadReply, ServerReply, connect, write_request
from app.bench.open_loop import LoadTarget, OpenLoopResult, open_loop, run_precisely
from app.bench.rate_search import RateSearch
from app.bench.request_body import CannotMakeRequest, InferencePath, TargetUrl

_ASK_TIMEOUT_S = 30.0

#: Chosen: a server that answers a smaller share of its requests has a growing queue, whatever p99 says so far.
_KEEPS_UP = 0.9


class Trials:
    """Finds the highest good rate of a server: p99 within the target, no failure, nearly all requests answered.

    Args:
        body: what to send; None makes a request of `rows` rows from the model's metadata.

    Raises:
        CannotMakeRequest: the URL is not valid.
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
        self._address = TargetUrl.parse(url)
        self._body, self._headers, self._rows = body, dict(headers), rows
        self._target = LoadTarget(self._address.host, self._address.port, connections)
        self._target_p99_ms, self._seconds = target_p99_ms, seconds

    def search(
        self, first_rate: float, most_trials: int, before: Callable[[float], None], after: Callable[[RatePoint], None]
    ) -> list[RatePoint]:
        """Every rate that was tried, in that order.

        Args:
            before: called with each rate before it is tried, `after` with its result.

        Raises:
            CannotMakeRequest: there is nothing to send, or the server rejects it.
            OSError: nothing listens at the URL.
        """
        return run_precisely(self._search(RateSearch(first_rate, most_trials), before, after))

    async def _search(
        self, search: RateSearch, before: Callable[[float], None], after: Callable[[RatePoint], None]
    ) -> list[RatePoint]:
        request = await self._request()
        rejection = await self._ask(request)
        if not 200 <= rejection.status < 300:
            raise CannotMakeRequest(f"The server rejects the request with {rejection.status}: {_shown(rejection)}")
        points: list[RatePoint] = []
        while (rate := search.next_rate()) is not None:
            before(rate)
            point = self._point(await open_loop(self._target, [request], rate, self._seconds, seed=len(points)))
            search.record(rate, point.good)
            points.append(point)
            after(point)
        return points

    def _point(self, load: OpenLoopResult) -> RatePoint:
        p99_ms = 1e3 * load.latency_s(0.99)
        good = load.failed == 0 and p99_ms <= self._target_p99_ms and len(load.latencies_s) >= _KEEPS_UP * load.intended
        return RatePoint(
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
        inference = InferencePath(address.path)
        reply = await self._ask(write_request("GET", inference.metadata_path, self._host, self._headers))
        if reply.status != 200:
            raise CannotMakeRequest(
                f"{inference.metadata_path} has status {reply.status}, not metadata: {_shown(reply)}"
            )
        made = inference.make_body(reply.body, self._rows)
        return write_request("POST", address.path, self._host, {**made.headers, **self._headers}, made.content)

    async def _ask(self, request: bytes) -> ServerReply:
        connection = await connect(self._target.host, self._target.port)
        try:
            async with asyncio.timeout(_ASK_TIMEOUT_S):
                return await connection.send(request)
        except (BadReply, TimeoutError) as error:
            raise CannotMakeRequest(f"No reply from {self._host}: {error or 'time is out'}") from None
        finally:
            connection.close()

    @property
    def _host(self) -> str:
        return f"{self._address.host}:{self._address.port}"


def _shown(reply: ServerReply) -> str:
    return reply.body[:200].decode(errors="replace")
