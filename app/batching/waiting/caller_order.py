"""The order of a model's lanes where callers take turns: the lanes of the caller whose turn it is come first.

The caller with the least virtual time (callers.py) is next, with its most urgent lane. A lane in which several callers
wait stands in the order of each of them, by what waits of that caller. It sleeps, too, for each of them: a request that
is added wakes it for its own caller, its time for all. No I/O, no clock.
"""

from __future__ import annotations

from app.batching.waiting.caller_turns import OwnRequests
from app.batching.waiting.callers import Caller, Turns
from app.batching.waiting.lane_order import Entry, LaneOrder


class _CallersLanes(LaneOrder[OwnRequests]):
    """The lanes of one caller that may be due."""

    __slots__ = ("caller", "turn")

    def __init__(self, caller: Caller) -> None:
        super().__init__()
        self.caller = caller
        self.turn: object = None


class CallerOrder(LaneOrder[OwnRequests]):
    """The lanes of one model; `lanes` counts one for each caller that waits in it."""

    __slots__ = ("_callers", "_turns")

    def __init__(self) -> None:
        super().__init__()
        self._callers: dict[Caller, _CallersLanes] = {}
        self._turns = Turns[_CallersLanes]()  # of callers with a lane that may be due

    def place(self, item: OwnRequests) -> None:
        own = self._callers.get(item.caller)
        if own is None:
            own = self._callers[item.caller] = _CallersLanes(item.caller)
        if item.place is None:
            self.lanes += 1
        own.place(item)
        if own.turn is None:
            self._turns.push(own)

    def remove(self, item: OwnRequests) -> None:
        super().remove(item)
        own = self._callers[item.caller]
        own.lanes -= 1
        if not own.lanes:
            del self._callers[item.caller]
            self._turns.discard(own)

    def first_awake(self) -> Entry[OwnRequests] | None:
        while (own := self._turns.first()) is not None:
            if (entry := own.first_awake()) is not None:
                return entry
            self._turns.discard(own)
        return None
