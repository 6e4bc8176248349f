"""The open loop of a load generator: requests are sent by the clock, whether or not the server keeps up.

Rules
1. Arrival times are a Poisson process, made from a seed before any request is sent.
2. A latency runs from the time at which its request was due, so waiting for a connection and a late generator add to it
   (no coordinated omission).
3. `late_p99_s` and `held_back` are the generator's share of that.
4. A request without an answer in time counts as failed.
"""

from __future__ import annotations

import asyncio
import random
import selectors
import ssl
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from app.bench.load_connection import BadReply, LoadConnection, ServerReply, connect

T = TypeVar("T")

#: The seconds for the last replies after the last request was due. Chosen.
GRACE_S = 5.0

#: The failure of a request whose reply did not come.
NO_ANSWER = "no answer in time"


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """The address of a server, for TLS if `tls` is given; at most `connections` requests are unanswered at a time."""

    host: str
    port: int
    connections: int = 256
    tls: ssl.SSLContext | None = None


@dataclass(slots=True)
class OpenLoopResult:
    """The result of one rate (requests a second) over `seconds`. Latencies are those of successes, ascending.

    `held_back`: requests that were due while all connections were busy, so the server could not see them yet.
    `unsent`: of the requests without an answer in time, those for which no connection was free until the end.
    """

    rate: float
    seconds: float
    intended: int = 0
    latencies_s: list[float] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    held_back: int = 0
    unsent: int = 0

    @property
    def answered_rate(self) -> float:
        return len(self.latencies_s) / self.seconds

    @property
    def failed(self) -> int:
        return self.failures.total()

    @property
    def late_p99_s(self) -> float:
        """The p99 of the time from a request's due time until the generator handles it."""
        return percentile(sorted(self.late_s), 0.99)

    def latency_s(self, q: float) -> float:
        """The quantile `q`, with a failure counted as an infinite latency."""
        return percentile([*self.latencies_s, *[float("inf")] * self.failed], q)


def percentile(ascending: Sequence[float], q: float) -> float:
    """The quantile `q` by nearest rank, so one of the values. Infinite if there are none."""
    if not ascending:
        return float("inf")
    return ascending[min(len(ascending) - 1, int(q * len(ascending)))]


def arrivals(rate: float, seconds: float, seed: int) -> Iterator[float]:
    """Arrival times of a Poisson process, in seconds after its start."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    at = draw.expovariate(rate)
    while at < seconds:
        yield at
        at += draw.expovariate(rate)


async def open_loop(
    target: LoadTarget,
    requests: Sequence[bytes],
    rate: float,
    seconds: float,
    *,
    seed: int = 0,
    check: Callable[[int, ServerReply], None] | None = None,
    heard: Callable[[ServerReply, float], None] | None = None,
) -> OpenLoopResult:
    """Send the requests in rotation at Poisson times.

    Args:
        check: gets the index of the request and its successful reply; raises ValueError if the reply is wrong.
        heard: gets every reply, of any status, and its latency in seconds.

    Raises:
        OSError: the first connection cannot be opened.
    """
    load = _Load(target, requests, OpenLoopResult(rate, seconds), check, heard)
    try:
        await load.run(list(arrivals(rate, seconds, seed)))
    finally:
        load.close()
    load.result.latencies_s.sort()
    return load.result


@dataclass(slots=True, eq=False, repr=False)
class _Load:
    """One run: connections, requests that are due, and the result."""

    target: LoadTarget
    requests: Sequence[bytes]
    result: OpenLoopResult
    check: Callable[[int, ServerReply], None] | None
    heard: Callable[[ServerReply, float], None] | None
    _free: list[LoadConnection] = field(default_factory=list)
    _open: int = 0
    _under_way: int = 0
    _waiting: deque[tuple[int, float]] = field(default_factory=deque)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _now: Callable[[], float] = field(default_factory=lambda: asyncio.get_running_loop().time)

    async def run(self, times: Sequence[float]) -> None:
        self.result.intended = len(times)
        self._free.append(await connect(self.target.host, self.target.port, self.target.tls))
        self._open = 1
        start = self._now()
        for number, time in enumerate(times):
            due = start + time
            await asyncio.sleep(max(0.0, due - self._now()))  # also if late: replies must be read
            self.result.late_s.append(self._now() - due)
            self._waiting.append((number, due))
            self._start_carrier()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GRACE_S)
        unanswered = len(self._waiting) + len(self._tasks)
        if unanswered:
            self.result.failures[NO_ANSWER] += unanswered
            self.result.unsent = unanswered - self._under_way

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for connection in self._free:
            connection.close()

    def _start_carrier(self) -> None:
        """Start a task that sends waiting requests over a free or new connection until none waits."""
        if not self._free and self._open >= self.target.connections:
            self.result.held_back += 1
            return
        connection = self._free.pop() if self._free else None
        self._open += connection is None
        task = asyncio.create_task(self._carry(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, connection: LoadConnection | None) -> None:
        try:
            while self._waiting:
                number, due = self._waiting.popleft()
                if connection is None or connection.closed:
                    connection = None
                    connection = await self._connected()
                if connection is not None:
                    await self._exchange(connection, number, due)
        finally:
            if connection is not None and not connection.closed:
                self._free.append(connection)
            else:
                self._open -= 1

    async def _connected(self) -> LoadConnection | None:
        try:
            return await connect(self.target.host, self.target.port, self.target.tls)
        except OSError as error:
            self.result.failures[f"no connection: {error.strerror or error}"] += 1
            return None

    async def _exchange(self, connection: LoadConnection, number: int, due: float) -> None:
        kind = number % len(self.requests)
        self._under_way += 1
        try:
            reply = await connection.send(self.requests[kind])
        except BadReply as error:
            self.result.failures[str(error)] += 1
            return
        finally:
            self._under_way -= 1
        latency = self._now() - due
        if self.heard is not None:
            self.heard(reply, latency)
        if not 200 <= reply.status < 300:
            self.result.failures[f"status {reply.status}"] += 1
        elif (wrong := self._wrong(kind, reply)) is not None:
            self.result.failures[wrong] += 1
        else:
            self.result.latencies_s.append(latency)

    def _wrong(self, kind: int, reply: ServerReply) -> str | None:
        if self.check is None:
            return None
        try:
            self.check(kind, reply)
        except ValueError as error:
            return f"wrong answer: {error}"
        return None


def run_precisely(main: Coroutine[object, object, T]) -> T:
    """asyncio.run whose timers have microseconds: select takes them, epoll (and uvloop) round up to milliseconds."""
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        return runner.run(main)
