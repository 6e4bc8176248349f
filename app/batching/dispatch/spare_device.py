"""Spare devices: free devices for work that answers no request (shadow checks, mixes of rows), one of a kind at a time.

A model is not unloaded while such work calls it. Everything here runs on the event loop; the work runs on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TypeVar

from app.batching.devices import DeviceSlots
from app.batching.function import BatchFunction

T = TypeVar("T")


class SpareDevice:
    """The borrower of a device for one kind of work.

    Args:
        waiting: whether requests need a device.
        clock: monotonic seconds.

    Attributes:
        busy: whether work is under way.
        last_s: the time when the last work ended.
    """

    def __init__(self, slots: DeviceSlots, waiting: Callable[[], bool], clock: Callable[[], float]) -> None:
        self.clock = clock
        self.busy = False
        self.last_s = -inf
        self._slots = slots
        self._waiting = waiting

    @property
    def called_s(self) -> float:
        """The seconds of all calls that have ended."""
        return self._slots.called_s

    def is_due(self, latest_s: float) -> bool:
        """Whether no request waits, or no work was done for `latest_s`."""
        return not self._waiting() or self.clock() - self.last_s >= latest_s

    def lends(self, function: BatchFunction) -> bool:
        """Whether work that calls this function may begin."""
        return not self.busy and self._slots.lends(function)

    def begin(self, function: BatchFunction, work: Callable[[], T], done: Callable[[T, float], None]) -> None:
        """Starts the work. `done` is called on the event loop with its result and its seconds."""
        began_s = self.clock()

        def end(result: T) -> None:
            self.busy = False
            function.leave()
            self.last_s = self.clock()
            done(result, self.last_s - began_s)

        self._slots.lend(work, end, function.devices)
        self.busy = True
        function.requests_under_way += 1
