"""Requests that arrive in one turn of the event loop begin when every socket that is readable now has been read.

A turn lasts as long as the work of the requests that begin in it, and meanwhile no other is answered. So requests that
would take more than a few milliseconds together are left for the next turns. There peers and connections have equal
parts (fair_queue.py), and new requests go before those of connections that have had a part. All of them are a burst:
the batcher makes no short call before the burst has begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from app.core.burst import Burst
from app.transports.fairness.fair_queue import FairQueue, Share

#: No request begins alone later in a turn of the event loop. Chosen: some turns pass until `/livez` is answered.
BEGIN_S = 0.003

#: Where much begins together in each turn, what begins alone has this time beside it. Chosen: a third of a turn.
_LEAST_ALONE_S = 0.001

#: At most this many requests, with this many bytes of content, begin together in a turn. Chosen: 10 ms at 10 ns a byte.
MOST_TOGETHER, MOST_BYTES = 512, 2**20

Request = TypeVar("Request")


class RequestsOfATurn(Generic[Request]):
    """Collects whole requests and begins them; a transport says how.

    Args:
        clock: monotonic seconds.
        burst: is told of requests that are left for the next turns.
    """

    def __init__(self, clock: Callable[[], float], burst: Burst) -> None:
        self._arrived: list[tuple[Request, bytes]] = []
        self._arrived_bytes = 0
        self._waiting: FairQueue[tuple[Request, bytes]] = FairQueue()  # arrived when there were too many for a turn
        self._alone: FairQueue[tuple[Request, bytes]] = FairQueue()  # none of them can begin together
        self._left = False  # some of these are left for the next turn
        self._clock = clock
        self._burst = burst

    # --- transports define these ---

    def share_of(self, request: Request) -> Share:
        """The share of the request's connection."""
        raise NotImplementedError

    def begin_together(self, arrived: Sequence[tuple[Request, bytes]]) -> Iterable[tuple[Request, bytes]]:
        """Begins requests as one where it can. Returns the others, in order; if it raises, all begin alone."""
        raise NotImplementedError

    def begin_alone(self, request: Request, content: bytes) -> bool:
        """Begins one request. False if it was begun or answered before, so that this took no time."""
        raise NotImplementedError

    def turn_ends(self) -> None:
        """All that could begin in this turn has begun."""

    # --- what comes ---

    def add(self, request: Request, content: bytes) -> None:
        if not (self._arrived or self._left):
            asyncio.get_running_loop().call_soon(self._begin)
        self._arrived.append((request, content))
        self._arrived_bytes += len(content)

    def _begin(self) -> None:
        try:
            self._begin_for_a_turn()
        finally:  # whatever happens, the others begin
            self.turn_ends()
            if self._left:
                self._left = bool(self._alone or self._waiting)
            more = self._left or bool(self._arrived)
            if more:
                asyncio.get_running_loop().call_soon(self._begin)
            if more or self._burst.is_open:
                self._burst.turn_ended(more)

    def _begin_for_a_turn(self) -> None:
        if not self._left and len(self._arrived) == 1:  # as nearly always where clients are few
            arrived, self._arrived, self._arrived_bytes = self._arrived, [], 0
            self.begin_alone(*arrived[0])
            return
        end_s = self._clock() + BEGIN_S
        self._left = True
        arrived = self._for_a_turn()
        try:
            alone = self.begin_together(arrived) if len(arrived) > 1 else arrived
        except Exception:
            self._leave(arrived)
            raise
        if not self._alone:
            self._begin_each(list(alone), end_s)
            return
        self._leave(alone)
        end_s = max(end_s, self._clock() + _LEAST_ALONE_S)
        while self._alone:
            _, each = self._alone.take()
            if self.begin_alone(*each) and self._clock() >= end_s:
                break

    def _begin_each(self, alone: Sequence[tuple[Request, bytes]], end_s: float) -> None:
        """Begins requests alone, in the order given, until `end_s`; the others are left for the next turn."""
        end_s = max(end_s, self._clock() + _LEAST_ALONE_S)
        begun = 0
        try:
            for each in alone:
                begun += 1
                if self.begin_alone(*each) and self._clock() >= end_s:
                    break
        finally:
            self._leave(alone[begun:])

    def _leave(self, alone: Iterable[tuple[Request, bytes]]) -> None:
        """Queues requests that begin alone, in this turn or in later ones."""
        for each in alone:
            self._alone.add(self.share_of(each[0]), each)

    def _for_a_turn(self) -> list[tuple[Request, bytes]]:
        """The arrived requests that may begin together in this turn; at least one. The others wait."""
        arrived, self._arrived, size, self._arrived_bytes = self._arrived, [], self._arrived_bytes, 0
        if not self._waiting and len(arrived) <= MOST_TOGETHER and size <= MOST_BYTES:
            return arrived
        waiting = self._waiting
        for each in arrived:
            waiting.add(self.share_of(each[0]), each)
        taken: list[tuple[Request, bytes]] = []
        size = 0
        while waiting and len(taken) < MOST_TOGETHER and size < MOST_BYTES:
            _, each = waiting.take()
            taken.append(each)
            size += len(each[1])
        return taken
