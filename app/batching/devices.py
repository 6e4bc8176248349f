"""The seam between the batcher and whatever carries out a batch.

How many of the rows that wait one of several idle devices takes. Pure.

The devices: which of them are free, and what the others work on."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from app.batching.batch import BatchInFlight, Execution, timed_execution
from app.batching.cost_model import CostCurve
from app.batching.queue import Lane

T = TypeVar("T")


class Device(Protocol):
    """Carries out one piece of work at a time, off the event loop."""

    @property
    def name(self) -> str: ...

    @property
    def replica(self) -> int:
        """Which replica of each model its batches run on; devices may have one in common."""

    @property
    def hardware(self) -> int:
        """What it computes on; devices of one number share that, and slow each other down."""

    def start(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Runs `work`, which never raises, and then calls `done` with its result on the event loop."""

    def failure(self, now: float) -> str:
        """Why the device is dead or stuck; empty while it is well."""

    def close(self) -> None:
        """Ends the thread behind it once its work is done. Nothing may be started any more."""


#: Handing a batch over has costs of its own, so several must be done in clearly less time than one.
_WORTH = 0.8


def rows_for_each(rows: int, devices: int, curve: CostCurve | None) -> int:
    """An equal share of `rows`, filled up to a size that is computed anyway; all where that saves little or is unknown.

    `devices` are idle and share no hardware.
    """
    if devices < 2 or curve is None:
        return rows
    place = bisect_left(curve.sizes, -(-rows // devices))
    share = curve.sizes[min(place, len(curve.sizes) - 1)]
    return share if share < rows and curve.call_s(share) < _WORTH * curve.call_s(rows) else rows


class Slots:
    """A slot is a device that works on one batch at a time; one that is listed twice takes two.

    Attributes:
        free: those that have no work.
    """

    def __init__(self, devices: Sequence[Device], clock: Callable[[], float]) -> None:
        self._devices = tuple(devices)
        self._clock = clock
        self._ends_s: dict[BatchInFlight, float] = {}
        self._at_work = Counter[int]()
        self.count = len(devices)
        self.free = list(devices)
        self._hardware = {device.hardware for device in devices}

    @property
    def idle(self) -> bool:
        """Is nothing under way?"""
        return len(self.free) == self.count

    def share(self, lane: Lane, rows: int) -> int:
        """How many of the `rows` rows that a batch may have it takes, so that other idle hardware gets its share."""
        waiting = min(lane.rows, rows)
        idle = sum([not self._at_work[each] for each in self._hardware])
        share = rows_for_each(waiting, idle, lane.curve)
        return share if share < waiting else rows

    def start(self, batch: BatchInFlight, now: float, ended: Callable[[BatchInFlight, Execution], None]) -> None:
        """Gives the batch to a free device; `ended` is called on the event loop when that is free again.

        Raises whatever a device does that takes no work.
        """
        device = self._take()
        self._ends_s[batch] = now + batch.expected_s

        def done(execution: Execution) -> None:
            self._give_back(device, batch)
            ended(batch, execution)

        try:
            device.start(partial(timed_execution, batch.function, batch.requests, self._clock, device.replica), done)
        except Exception:
            self._give_back(device, batch)
            batch.fail(f"Device {device.name} takes no work")
            raise

    def _take(self) -> Device:
        """A free one, on the hardware that has the least to do."""
        device = self.free[0] if len(self.free) == 1 else min(self.free, key=lambda each: self._at_work[each.hardware])
        self.free.remove(device)
        self._at_work[device.hardware] += 1
        return device

    def _give_back(self, device: Device, batch: BatchInFlight) -> None:
        self.free.append(device)
        self._at_work[device.hardware] -= 1
        del self._ends_s[batch]

    def busy_s(self, now: float) -> list[float]:
        """How long each batch under way will still take, as far as known."""
        return [max(0.0, end_s - now) for end_s in self._ends_s.values()]

    def failures(self, now: float) -> list[str]:
        """What is dead or stuck."""
        return [failure for device in self._devices if (failure := device.failure(now))]

    def close(self) -> None:
        for device in self._devices:
            device.close()

    def __repr__(self) -> str:
        return f"{len(self.free)} of {self.count} devices free"
