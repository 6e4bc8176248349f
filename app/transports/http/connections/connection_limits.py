"""Limits on a connection and on the number of connections; connections that wait give way to new ones.

Like nginx, a full server closes connections that wait for a request: first those that linger after their last reply
(lingering.py), then those that have waited longest. It closes several at a time, so that one search makes room for
many. If all connections have a request, a new connection is rejected with 503 (over_limit.py). The limit is below that
of file descriptors (app/transports/descriptors.py), so accepting never fails for lack of one.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from heapq import nsmallest
from math import inf
from random import random
from typing import Protocol

from app.core.events import ConnectionsRejected, Listener
from app.transports import descriptors

logger = logging.getLogger(__name__)

#: This part of all connections is closed at a time; if none waits, the next look is this many seconds later (chosen).
_CLOSED_SHARE, _NONE_WAITS_S = 1 / 32, 0.1

#: A longer request line is rejected with 414, a head with more headers with 431. Chosen: nginx's line, and more headers
#: than a browser with its proxies sends.
MOST_REQUEST_LINE_BYTES, MOST_HEADERS = 8 * 1024, 128


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds on heads and on times. The settings of the same names say what each means.

    Attributes:
        max_head_bytes: a longer head (request line and headers) is rejected with 431.
        keep_alive_s: seconds without a byte after a reply, until the connection is closed.
        arrival_timeout_s: seconds for a head to arrive, and the grace of a body.
        min_body_bytes_per_s: a body that arrives more slowly than this, after its grace, is given up.
        max_body_bytes: no more is held of a body: a longer one is rejected, or read as a stream.
        max_connections: open at the same time in this process; 0: as many as file descriptors allow.
        max_connections_per_address: open at the same time from one address; 0: no limit.
        max_connection_age_s: seconds after which the next reply of a connection ends it; 0: never.
    """

    max_head_bytes: int = 32 * 1024
    keep_alive_s: float = 75.0
    arrival_timeout_s: float = 60.0
    min_body_bytes_per_s: int = 16 * 1024
    max_body_bytes: int = 64 * 1024 * 1024
    max_connections: int = 0
    max_connections_per_address: int = 0
    max_connection_age_s: float = 0.0

    def age_s(self, draw: Callable[[], float] = random) -> float:
        """The age of one connection: a tenth more or less by chance, so that connections do not all end together."""
        return self.max_connection_age_s * (0.9 + 0.2 * draw()) or inf


class Waiting(Protocol):
    """A connection that counts, and may be closed for a new one while it waits."""

    @property
    def address(self) -> str: ...
    @property
    def waits_since_s(self) -> float:
        """Monotonic second since which it waits for a whole head; inf if it has one, -inf after its last reply."""

    def give_way(self) -> None:
        """Closes it: it has no request."""


class Connections:
    """The HTTP connections of a process. `listener` gets an event for each rejected one; `tls`: they use TLS."""

    def __init__(
        self,
        limits: ConnectionLimits,
        clock: Callable[[], float],
        listener: Listener | None = None,
        *,
        tls: bool = False,
    ) -> None:
        self.limits = limits
        self._most = _most(limits.max_connections, tls=tls)
        self._most_of_address = limits.max_connections_per_address
        self._clock = clock
        self._listener = listener
        self._open: set[Waiting] = set()
        self._of_address: Counter[str] = Counter()
        self._looks_again_s = -inf

    def number(self) -> int:
        """The number of open connections."""
        return len(self._open)

    def admit(self, connection: Waiting, *, tell: bool = True) -> str:
        """Adds a connection, or returns why it is rejected, and tells the listener unless `tell` is false."""
        address = connection.address
        if address and 0 < self._most_of_address <= self._of_address[address]:
            if tell:
                self._tell("address")
            return f"This address has {self._most_of_address} connections, which is max_connections_per_address"
        if len(self._open) >= self._most and not self._make_room():
            if tell:
                self._tell("full")
            return f"The server has {self._most} connections with a request each (max_connections)"
        self._open.add(connection)
        self._of_address[address] += 1
        return ""

    def remove(self, connection: Waiting) -> None:
        """The connection has ended. Does nothing if it was not added, or is removed already."""
        if connection in self._open:
            self._open.remove(connection)
            address = connection.address
            self._of_address[address] -= 1
            if not self._of_address[address]:
                del self._of_address[address]

    def replace(self, connection: Waiting, by: Waiting) -> None:
        """The same socket goes on as another connection, of the same address. Does nothing if it was not added."""
        if connection in self._open:
            self._open.remove(connection)
            self._open.add(by)

    def _tell(self, reason: str) -> None:
        if self._listener is not None:
            self._listener(ConnectionsRejected(reason))

    def _make_room(self) -> bool:
        now = self._clock()
        if now < self._looks_again_s:
            return False
        waiting = [each for each in self._open if each.waits_since_s < inf]
        for each in nsmallest(max(1, int(self._most * _CLOSED_SHARE)), waiting, key=lambda one: one.waits_since_s):
            self.remove(each)
            each.give_way()
            self._tell("gave_way")
        if not waiting:
            self._looks_again_s = now + _NONE_WAITS_S
        return bool(waiting)


def _most(configured: int, *, tls: bool) -> int:
    possible = descriptors.http_descriptors()
    if configured > possible:
        logger.warning(
            "max_connections is %d, but file descriptors (ulimit -n) allow %d, which are used", configured, possible
        )
    return min(configured, possible) or descriptors.http_connections(tls=tls)
