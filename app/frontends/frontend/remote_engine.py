"""The engine as a frontend knows it: its connection, its catalog, its health."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

from app.core.bounded_cache import BoundedCache
from app.core.errors import ModelNotReady
from app.core.events import (
    AccessDenied,
    ConnectionsRejected,
    CredentialsLoaded,
    Event,
    LogLinesDropped,
    RequestFinished,
    RequestsDenied,
    RequestsFinished,
    RequestsRefused,
    RequestTraced,
    Subscriptions,
)
from app.frontends.channel.catalog_snapshot import CatalogSnapshot
from app.frontends.channel.messages import MessageKind
from app.frontends.channel.model_list import MODEL_LIST
from app.frontends.frontend.engine_connection import EngineConnection, connect, engine_gone
from app.frontends.frontend.remote_repository import RemoteRepository
from app.log_output.standard_streams import dropped_lines
from app.repository.model_config import ModelConfig
from app.server.drain_time import DrainTime, why_ending

logger = logging.getLogger(__name__)

#: Chosen: how long counts are collected before they are sent.
_SEND_COUNTS_WITHIN_S = 0.2

#: Chosen: how many requests with the same labels are counted while the engine is gone; all of them were rejected.
_MOST_COUNTED = 10_000

#: The most traced requests that one message tells; of more, the last ones are kept. Chosen.
_MOST_TRACED = 1000

#: Chosen: as in the engine.
_MOST_CALLERS = 65_536

#: Chosen.
_RECONNECT_AFTER_S = 0.1

#: Chosen: an engine sends its health four times a second; after this many seconds without it no request should come.
_SILENT_S = 2.0

#: Chosen: a page takes as long as the engine waits for the counts of other frontends, at most. Loading has no limit.
_PAGE_S = 10.0
_LONG_QUERIES = {"load", "unload", "reload"}

#: Chosen: how long the engine may take to read the last messages.
_CLOSE_S = 1.0


class RemoteEngine:
    """Keeps a connection to the engine. Created anywhere, started on the event loop.

    Args:
        socket: path of the Unix socket where the engine accepts frontends.
        silent_after_s: an engine that was connected and has sent nothing for this long counts as stuck.
        dropped_lines: gives the number of log lines that this process has dropped.
    """

    def __init__(
        self,
        socket: Path,
        silent_after_s: float,
        clock: Callable[[], float] = time.monotonic,
        dropped_lines: Callable[[], int] = dropped_lines,
    ) -> None:
        self.repository = RemoteRepository(self.query)
        self.leaving = False  # this frontend is about to drain
        self.draining = asyncio.Event()

        # The connection.
        self._socket = socket
        self._connection: EngineConnection | None = None
        self._keeping: asyncio.Task[None] | None = None

        # The engine's health, and when it was last sent.
        self._silent_after_s = silent_after_s
        self._clock = clock
        self._serves = asyncio.Event()
        self._heard_s = 0.0
        self._dead: Sequence[str] = ()
        self._unready: Sequence[str] = ()
        self._problems: Sequence[str] = ()

        # Weights of callers, which each engine is told.
        self._weights: BoundedCache[str, float] = BoundedCache(_MOST_CALLERS)

        # Events that were counted and not sent yet.
        self._dropped_lines = dropped_lines
        self._counted: dict[tuple[str, str, str, int, str], list[float]] = {}
        self._sums: Counter[tuple[Callable[[str, int], Event], str]] = Counter()  # by type of event, and its reason
        self._traced: deque[RequestTraced] = deque(maxlen=_MOST_TRACED)
        self._loads: Counter[CredentialsLoaded] = Counter()
        self._told_dropped = 0
        self._send_timer: asyncio.TimerHandle | None = None

    # --- life ---

    def start(self) -> None:
        self._keeping = asyncio.create_task(self._keep_connected(), name="engine")

    @property
    def is_connected(self) -> bool:
        return self._serves.is_set()

    @property
    def answers(self) -> bool:
        """Is it connected, and was it heard lately?"""
        return self.is_connected and not self._silent(_SILENT_S)

    async def wait_until_connected(self) -> None:
        """Returns when the engine has sent its health, or this frontend drains."""
        waiting = [asyncio.create_task(event.wait()) for event in (self._serves, self.draining)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for each in waiting:
            each.cancel()

    def begin_drain(self) -> None:
        """Not ready from now on; no new request is sent."""
        self.draining.set()
        if self._connection is not None:
            self._connection.begin_drain()

    async def drain(self, time: DrainTime) -> bool:
        """Wait until the engine has answered everything. False if there is no time left."""
        self.begin_drain()
        return await time.wait(self._connection.idle if self._connection else None, self._connection)

    async def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
        if self._send_timer is not None:
            self._send_timer.cancel()
        if self._connection is not None:
            self.send_counts(self._connection)
            self._connection.close()
            await asyncio.wait([self._connection.closed], timeout=_CLOSE_S)

    async def _keep_connected(self) -> None:
        while True:
            try:
                connection = self._connection = await connect(self._socket, self)
                for name, weight in self._weights.items():
                    connection.send(MessageKind.WEIGH, name, weight)
                if self.draining.is_set():
                    connection.begin_drain()
                await asyncio.shield(connection.closed)
                logger.warning("The engine closed its connection; requests are rejected until it is back")
            except OSError as error:
                logger.warning("The engine cannot be reached: %s; next try in %g s", error, _RECONNECT_AFTER_S)
            self._connection = None
            self._serves.clear()
            self._dead = self._unready = self._problems = ()
            self.repository.clear()
            await asyncio.sleep(_RECONNECT_AFTER_S)

    # --- what the engine sends: an EngineObserver ---

    def on_catalog(self, connection: EngineConnection, snapshot: CatalogSnapshot) -> None:
        self.repository.apply(connection, snapshot)

    def on_health(self, dead: Sequence[str], unready: Sequence[str], problems: Sequence[str]) -> None:
        self._dead, self._unready, self._problems = dead, unready, problems
        self._heard_s = self._clock()
        self._serves.set()

    def send_counts(self, connection: EngineConnection) -> None:
        counted, self._counted = self._counted, {}
        sums, self._sums = self._sums, Counter()
        loads, self._loads = self._loads, Counter()
        traced = [self._traced.popleft() for _ in range(len(self._traced))]
        dropped, self._told_dropped = self._told_dropped, self._dropped_lines()
        events: list[Event] = [
            *(RequestsFinished(*labels, seconds) for labels, seconds in counted.items()),
            *(kind(reason, number) for (kind, reason), number in sums.items()),
            *traced,
            *loads.elements(),
            *([LogLinesDropped(self._told_dropped - dropped)] if self._told_dropped > dropped else []),
        ]
        for event in events:
            connection.send(MessageKind.EVENT, type(event).__name__, *event)

    # --- queries and counts ---

    async def reload(self, configs: Sequence[ModelConfig]) -> None:
        """See Engine.reload_for_caller."""
        await self.query("reload", MODEL_LIST.dump_json([*configs]))

    async def query(self, name: str, *arguments: Any) -> Any:
        """Raises ModelNotReady if the engine is gone or silent, DeadlineExceeded, and what the engine raises."""
        # While no engine runs, the supervisor's socket still takes the connection: a query would wait there.
        if self._connection is None or not self._serves.is_set():
            raise engine_gone()
        if silent := self._silent(_SILENT_S):
            raise ModelNotReady(silent)
        return await self._connection.query(name, *arguments, timeout_s=inf if name in _LONG_QUERIES else _PAGE_S)

    def weigh_caller(self, name: str, weight: float) -> None:
        """See Engine.weigh_caller."""
        known = self._weights.get(name, 1.0)
        self._weights.keep(name, weight)
        if weight != known and self._connection is not None:
            self._connection.send(MessageKind.WEIGH, name, weight)

    @property
    def subscriptions(self) -> Subscriptions:
        """The subscriptions to events that the engine counts for all frontends."""
        kinds = (
            RequestFinished,
            RequestsFinished,
            ConnectionsRejected,
            RequestsRefused,
            RequestTraced,
            AccessDenied,
            CredentialsLoaded,
        )
        return dict.fromkeys(kinds, self.count)

    def count(self, event: Event) -> None:
        """Keeps an event of these types for the engine, which counts for all frontends."""
        if isinstance(event, RequestFinished | RequestsFinished):
            seconds = self._counted.setdefault(event[:5], [])
            more = [event.seconds] if isinstance(event, RequestFinished) else event.seconds
            seconds.extend(more[: max(0, _MOST_COUNTED - len(seconds))])
        elif isinstance(event, ConnectionsRejected | RequestsRefused):
            self._sums[type(event), event[0]] += event.number
        elif isinstance(event, RequestTraced):
            self._traced.append(event)
        elif isinstance(event, AccessDenied):
            self._sums[RequestsDenied, event.reason] += 1
        elif isinstance(event, CredentialsLoaded):
            self._loads[event._replace(detail="")] += 1
        if self._send_timer is None:
            self._send_timer = asyncio.get_running_loop().call_later(_SEND_COUNTS_WITHIN_S, self._send_collected_counts)

    def _send_collected_counts(self) -> None:
        self._send_timer = None
        if self._connection is not None:
            self.send_counts(self._connection)

    # --- health ---

    def dead(self) -> list[str]:
        silent = self._silent(self._silent_after_s)
        return [*self._dead, silent] if silent else list(self._dead)

    def _silent(self, longest_s: float) -> str:
        """Why the server is not well, if the engine has sent nothing for longer than this; else empty."""
        silent_s = self._clock() - self._heard_s
        return (
            f"The engine has sent nothing for {silent_s:.0f} s"
            if self._serves.is_set() and silent_s > longest_s
            else ""
        )

    def unready(self) -> list[str]:
        reasons = why_ending(leaving=self.leaving, draining=self.draining.is_set())
        if not self._serves.is_set():
            return [*reasons, "The engine is starting"]
        silent = self._silent(min(_SILENT_S, self._silent_after_s))
        return list(dict.fromkeys([*reasons, *filter(None, [silent]), *self._unready]))

    def problems(self) -> list[str]:
        return list(self._problems)

    def __repr__(self) -> str:
        state = "draining" if self.draining.is_set() else "ready" if self.is_connected else "waiting for the engine"
        return f"<RemoteEngine {state}, {self._connection}>"
