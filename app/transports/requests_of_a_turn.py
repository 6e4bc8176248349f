"""Requests that arrive in one turn of the event loop begin when every socket that is readable now has been read.

A turn lasts as long as what is begun in it, and nothing else is answered meanwhile. So what takes longer than a few
milliseconds is left for the next turns; what arrives in these is begun behind it. All of this is a burst: the batcher
makes no short call before it has begun.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Generic, TypeVar

from app.core.burst import Burst

#: No request begins alone later in a turn of the event loop. Chosen: some turns pass until `/livez` is answered.
TURN_S = 0.003

#: At most this many requests, with this many bytes of content, begin together in a turn. Chosen: 10 ms at 10 ns a byte.
MOST_TOGETHER, MOST_BYTES = 512, 2**20

Request = TypeVar("Request")

_content = itemgetter(1)


class RequestsOfATurn(Generic[Request]):
    """Collects whole requests and begins them; a transport says how.

    Args:
        clock: monotonic seconds.
        burst: is told of requests that are left for the next turns.
    """

    def __init__(self, clock: Callable[[], float], burst: Burst) -> None:
        self._arrived: list[tuple[Request, bytes]] = []
        self._alone: deque[tuple[Request, bytes]] = deque()  # of a turn before; none of them can begin together
        self._clock = clock
        self._burst = burst

    # --- transports define these ---

    def begin_together(self, arrived: Sequence[tuple[Request, bytes]]) -> Iterable[tuple[Request, bytes]]:
        """Begins what can begin as one. Returns what has to begin alone, in order. If it raises, all of them do."""
        raise NotImplementedError

    def begin_alone(self, request: Request, content: bytes) -> bool:
        """Returns whether that took its time: not if it was begun or answered meanwhile."""
        raise NotImplementedError

    def turn_ends(self) -> None:
        """All that could begin in this turn has begun."""

    # --- what comes ---

    def add(self, request: Request, content: bytes) -> None:
        if not (self._arrived or self._alone):
            asyncio.get_running_loop().call_soon(self._begin)
        self._arrived.append((request, content))

    def _begin(self) -> None:
        try:
            self._begin_for_a_turn()
        finally:  # whatever happens, the others begin
            self.turn_ends()
            more = bool(self._alone or self._arrived)
            if more:
                asyncio.get_running_loop().call_soon(self._begin)
            if more or self._burst.is_open:
                self._burst.turn_ended(more)

    def _begin_for_a_turn(self) -> None:
        end_s = self._clock() + TURN_S
        alone = self._alone
        if not alone:
            first = _for_a_turn(self._arrived)
            arrived, self._arrived = self._arrived[:first], self._arrived[first:]
            try:
                alone.extend(self.begin_together(arrived) if first > 1 else arrived)
            except Exception:
                alone.extend(arrived)
                raise
        while alone:
            if self.begin_alone(*alone.popleft()) and self._clock() >= end_s:
                break


def _for_a_turn(arrived: Sequence[tuple[object, bytes]]) -> int:
    """How many of the first are few enough; at least one."""
    if len(arrived) <= MOST_TOGETHER and sum(map(len, map(_content, arrived))) <= MOST_BYTES:
        return len(arrived)
    sizes = accumulate(len(content) for _, content in arrived[:MOST_TOGETHER])
    return max(1, sum(size <= MOST_BYTES for size in sizes))
