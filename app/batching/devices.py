"""The devices: which are free, what the others compute, and how one batch is sharded over several idle ones."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from app.batching.batch import BatchInFlight, Execution, execute
from app.batching.cost_model import CostCurve
from app.batching.waiting.lane import Lane

T = TypeVar("T")

#: Several calls must take at most this share of the time of one: starting a batch has costs of its own. Chosen.
_WORTHWHILE_SHARE = 0.8


class Device(Protocol):
    """Carries out one piece of work at a time, off the event loop."""

    @property
    def name(self) -> str: ...

    @property
    def replica(self) -> int:
        """Which replica of each model its batches run on; several devices may use the same one."""

    @property
    def hardware(self) -> int:
        """What it computes on; devices with the same number share that, and slow each other down."""

    def start(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Runs `work`, which never raises, and then calls `done` with its result on the event loop."""

    def failure(self, now: float) -> str:
        """Why the device is dead or stuck; empty while it is well."""

    def close(self) -> None:
        """Ends the thread behind it once its work is done. Nothing may be started afterwards."""


def shard_rows(rows: int, devices: int, curve: CostCurve | None) -> int:
    """The rows that one of `devices` idle devices, which share no hardware, takes of `rows` waiting rows.

    An equal share, rounded up to a batch size; all rows if sharding saves little or costs are unknown.
    """
    if not devices or curve is None:
        return rows
    index = bisect_left(curve.sizes, -(-rows // devices))
    shard = curve.sizes[min(index, len(curve.sizes) - 1)]
    return shard if curve.call_s(shard) < _WORTHWHILE_SHARE * curve.call_s(rows) else rows


class DeviceSlots:
    """A slot is a device that works on one batch at a time; a device that is listed twice works on two.

    Attributes:
        free: the devices without work.
    """

    def __init__(self, devices: Sequence[Device], clock: Callable[[], float]) -> None:
        self._devices = tuple(devices)
        self._hardware = {device.hardware for device in devices}
        self._clock = clock
        self.count = len(devices)

        # What is in flight
        self.free = list(devices)
        self._busy: dict[BatchInFlight, tuple[Device, float]] = {}  # and when the batch is expected to end
        self._busy_hardware = Counter[int]()

    @property
    def idle(self) -> bool:
        return len(self.free) == self.count

    def rows_for_next(self, lane: Lane, rows: int) -> int:
        """How many of `rows` allowed rows the next batch of `lane` takes, so that all idle hardware gets a share."""
        waiting = min(lane.rows, rows)
        idle = sum([not self._busy_hardware[each] for each in self._hardware])
        shard = shard_rows(waiting, idle, lane.costs.curve)
        return shard if shard < waiting else rows

    def start(self, batch: BatchInFlight, now: float, ended: Callable[[BatchInFlight, Execution], None]) -> None:
        """Gives the batch to a free device; `ended` is called on the event loop when the device is free again.

        Raises whatever a device raises that takes no work; then the batch's requests are failed.
        """
        device = self._take()
        self._busy[batch] = device, now + batch.expected_s

        def done(execution: Execution) -> None:
            self._give_back(device)
            del self._busy[batch]
            ended(batch, execution)

        try:
            device.start(partial(execute, batch.function, batch.requests, self._clock, device.replica), done)
        except Exception:
            self._give_back(device)
            del self._busy[batch]
            batch.fail(f"Device {device.name} takes no work")
            raise

    def lend(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Runs other work than a batch on a free device; `done` is called when that is free again.

        Raises whatever a device raises that takes no work.
        """
        device = self._take()

        def ended(result: T) -> None:
            self._give_back(device)
            done(result)

        try:
            device.start(work, ended)
        except Exception:
            self._give_back(device)
            raise

    def _take(self) -> Device:
        """A free device, on the hardware with the fewest batches in flight."""
        device = (
            self.free[0] if len(self.free) == 1 else min(self.free, key=lambda each: self._busy_hardware[each.hardware])
        )
        self.free.remove(device)
        self._busy_hardware[device.hardware] += 1
        return device

    def _give_back(self, device: Device) -> None:
        self.free.append(device)
        self._busy_hardware[device.hardware] -= 1

    def remaining_s(self, now: float) -> list[float]:
        """The seconds that each batch in flight is expected to take from now on."""
        return [max(0.0, end_s - now) for _, end_s in self._busy.values()]

    def failures(self, now: float) -> list[str]:
        return [failure for device in self._devices if (failure := device.failure(now))]

    def close(self) -> None:
        for device in self._devices:
            device.close()

    def __repr__(self) -> str:
        busy = "".join(f", {device.name}: {batch!r}" for batch, (device, _) in self._busy.items())
        return f"<DeviceSlots {len(self.free)} of {self.count} free{busy}>"
