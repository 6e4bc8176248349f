"""Fair turns of the event loop: no client takes more than a little of any of them.

A peer is all connections of one address. Work that a client's bytes cause is done within the time of its peer, PEER_S
of each turn of the loop. Then other peers have theirs, and then the loop reads its sockets and runs its timers. Work
that is left goes on in the next turns (fair_queue.py says in which order), without a pause if nothing else is to be
done.

Three kinds of work ask here:

    what is read       `began` (until when) ... `ended`  in slices, with a look at the clock between two of them
    work that may wait `run`                             now, or in a later turn
    tasks              `await may_step`                  before what may take long: a call begins, a reply is made

Laws (fairness/test_turns.py): a peer that waits has its turn after at most PEER_S, and one piece of work, of each other
peer. Waiting work of a connection keeps its order; that of a closed connection is forgotten. Nothing is kept of peers
without waiting work.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import ClassVar
from weakref import WeakKeyDictionary

from app.transports.fairness.fair_queue import FairQueue, Share

logger = logging.getLogger(__name__)

#: Seconds of a turn that all connections of a peer have together. Chosen: with ten peers 20 ms pass between turns.
PEER_S = 0.002

#: Seconds that a connection has at a time while others of its peer wait. Chosen: of four, each goes on in every turn.
PIECE_S = PEER_S / 4

#: Work of fewer seconds is not counted, so that a usual request costs only two looks at the clock. Chosen.
_SHORT_S = 50e-6

#: Tasks of a peer that are woken in a turn; each of them looks at the clock, and waits again if the time is over.
_WOKEN = 8

Work = Callable[[], None]


class Turns:
    """The turns of one event loop, shared out among peers.

    Args:
        call_soon: calls in the next turn of the loop.
        clock: monotonic seconds.
    """

    _all: ClassVar = WeakKeyDictionary[asyncio.AbstractEventLoop, "Turns"]()

    def __init__(self, call_soon: Callable[[Work], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._call_soon = call_soon
        self.clock = clock
        self._queue: FairQueue[Work | asyncio.Future[None]] = FairQueue()
        self._spent_s: dict[str, float] = {}  # of this turn, by peer
        self._counts = False  # this turn has an end: `_turn_ends` is to be called
        self._task_of, self._since_s = "", 0.0  # a task of this peer has run since then
        self._task_runs = False
        self._woken_too_late: list[tuple[Share, asyncio.Future[None]]] = []

    @classmethod
    def of_loop(cls, clock: Callable[[], float] = time.monotonic) -> Turns:
        """The turns of the running event loop; `clock` is used if they are made now."""
        loop = asyncio.get_running_loop()
        found = cls._all.get(loop)
        if found is None:
            # A method of the loop would hold the loop, which would never be forgotten.
            found = cls._all[loop] = cls(lambda work: asyncio.get_running_loop().call_soon(work), clock)
        return found

    # --- what is read ---

    def began(self, share: Share, now_s: float) -> float:
        """The connection reads: until which second it may go on; it is past if the peer's time is over."""
        left_s = PEER_S - self._spent_s.get(share.peer, 0.0) if self._spent_s else PEER_S
        if left_s > PIECE_S and self._queue.peers and self._queue.others(share):
            left_s = PIECE_S
        return now_s + left_s

    def ended(self, share: Share, began_s: float) -> None:
        """The connection has read since `began_s`: that time is its peer's, unless it was short."""
        took_s = self.clock() - began_s
        if took_s > _SHORT_S:
            self._count(share.peer, took_s)

    # --- work that may wait ---

    def run(self, share: Share, work: Work) -> None:
        """Does it now if the connection may; else, and in order, in a later turn."""
        now = self.clock()
        if share in self._queue or self.began(share, now) <= now:
            self.later(share, work)
            return
        try:
            work()
        finally:
            self.ended(share, now)

    def later(self, share: Share, work: Work, *, again: bool = False) -> None:
        """Does work in a later turn. `again`: it continues work that has just had its turn."""
        if not share.closed:
            self._queue.add(share, work, served=again)
            self._turn_begins()

    def waits(self, share: Share) -> bool:
        """Does work of the connection wait?"""
        return bool(self._queue.peers) and share in self._queue

    # --- tasks ---

    async def may_step(self, share: Share) -> None:
        """Returns when a task may take its next step, at once if nothing of the connection waits and it has time."""
        if not self.waits(share) and self._may_step(share):
            return
        woken = asyncio.get_running_loop().create_future()
        self._queue.add(share, woken)
        self._turn_begins()
        while not share.closed:
            await woken
            if self._may_step(share):
                return
            woken = asyncio.get_running_loop().create_future()
            self._woken_too_late.append((share, woken))
            self._turn_begins()

    def _may_step(self, share: Share) -> bool:
        now = self.clock()
        self._task_waits(now)
        if self._spent_s.get(share.peer, 0.0) >= PEER_S:
            return False
        self._task_runs, self._task_of, self._since_s = True, share.peer, now
        self._turn_begins()
        return True

    def _task_waits(self, now_s: float) -> None:
        """Counts the step of the last task: its end is not reported, but is not later than now."""
        if self._task_runs:
            self._task_runs = False
            self._count(self._task_of, now_s - self._since_s)

    # --- the end of a connection ---

    def forget(self, share: Share) -> None:
        """The connection has closed: its work is dropped; its tasks go on, and find that their client has gone."""
        share.closed = True
        for each in self._queue.drop(share):
            if isinstance(each, asyncio.Future) and not each.done():
                each.set_result(None)

    # --- turns of the loop ---

    def _count(self, peer: str, seconds: float) -> None:
        self._spent_s[peer] = self._spent_s.get(peer, 0.0) + seconds
        self._turn_begins()

    def _turn_begins(self) -> None:
        if not self._counts:
            self._counts = True
            self._call_soon(self._turn_ends)

    def _turn_ends(self) -> None:
        """Ends a turn: the next one begins with waiting work, before sockets are read."""
        self._task_waits(self.clock())
        self._spent_s.clear()
        late, self._woken_too_late = self._woken_too_late, []
        for share, woken in reversed(late):
            if woken.done():  # its task was cancelled
                continue
            if share.closed:
                woken.set_result(None)
            else:
                self._queue.add(share, woken, first=True)

        woken_now = [self._serve(peer) for peer in list(self._queue.peers)]

        # Behind the tasks that were woken, so that they step within the turn.
        self._counts = False
        if self._queue.peers or self._spent_s or any(woken_now):
            self._turn_begins()

    def _serve(self, peer: str) -> int:
        """Gives a peer its time, for one piece of work at least. Returns how many tasks were woken.

        Work behind tasks waits for the next turn: else it would take their time before they step.
        """
        woken, queue = 0, self._queue
        while peer in queue.peers and self._spent_s.get(peer, 0.0) < PEER_S and woken < _WOKEN:
            if woken and not isinstance(queue.first_of(peer), asyncio.Future):
                break
            share, work = queue.take_of(peer)
            if isinstance(work, asyncio.Future):
                if not work.done():  # else its task was cancelled
                    work.set_result(None)
                    woken += 1
                continue
            began_s = self.clock()
            try:
                work()
            except Exception:  # others have their turn all the same
                logger.exception("A bug ended work of %r", share)
            self._count(peer, self.clock() - began_s)
        return woken

    def __repr__(self) -> str:
        return f"<Turns {self._queue!r}>"
