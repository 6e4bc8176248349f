"""The devices: free slots, batches in flight, and shards of one batch for several idle devices.

A model that lies on several devices needs them together (`BatchFunction.devices`):
1. While a call of it runs, no other batch is given to any of these devices, nor executed on the event loop.
2. A call waits until all of them are free. Meanwhile the free ones wait with it, and less urgent batches get other
   devices (`claim`). So no batch waits for one that came later (tests/batching/dispatch/
   test_calls_on_several_devices.py).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from app.batching.batch import BatchInFlight, Execution, execute
from app.batching.costs.curve import CostCurve
from app.batching.function import BatchFunction
from app.batching.waiting.lane import Lane

T = TypeVar("T")

#: Several calls must take at most this share of the time of one: starting a batch has costs of its own. Chosen.
_WORTHWHILE_SHARE = 0.8

#: Models that are no longer served and whose busy seconds are kept: the last that went. Chosen.
_GONE_KEPT = 64


class Device(Protocol):
    """A device: it carries out one piece of work at a time, off the event loop."""

    @property
    def name(self) -> str: ...

    @property
    def replica(self) -> int:
        """The number of the replica of each model that its batches run on; several devices may use the same one."""

    @property
    def hardware(self) -> int:
        """The number of the hardware that it computes on; devices that share it slow each other down."""

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
    """The slots: a device works on one batch at a time; one that is listed twice works on two.

    Attributes:
        free: the devices without work.
        reserved: the names of the devices of calls in flight that need several.
        awaited: the devices that calls wait for which need several; less urgent batches do not get them. It is cleared
            to look at all waiting batches again, the most urgent first.
        called_s: the seconds of all calls that have ended.
        on_return: called whenever a device that was lent is free again, after `done`.
    """

    def __init__(self, devices: Sequence[Device], clock: Callable[[], float]) -> None:
        self._devices = tuple(devices)
        self._hardware = {device.hardware for device in devices}
        self._clock = clock
        self.count = len(devices)

        # The calls in flight.
        self.free = list(devices)
        self.reserved = set[str]()
        self.awaited = set[Device]()
        self.called_s = 0.0
        self.on_return: Callable[[], None] | None = None
        #: The devices of each batch, when it is expected to end, and when it began.
        self._busy: dict[BatchInFlight, tuple[Sequence[Device], float, float]] = {}
        self._busy_hardware = Counter[int]()
        self._busy_s = defaultdict[tuple[str, str], float](float)  # of batches that have ended
        self._gone: dict[str, None] = {}  # models, in order

    @property
    def idle(self) -> bool:
        return len(self.free) == self.count

    def claim(self, function: BatchFunction) -> bool:
        """Whether a batch of the function can start now.

        If not, and it needs several devices, these take no less urgent batch until `awaited` is cleared.
        """
        if self.takes(function):
            return True
        self.awaited.update(self._slots_of(function.devices))
        return False

    def takes(self, function: BatchFunction) -> bool:
        """Whether the devices that a batch of the function needs are free, and not awaited by another one."""
        if not function.devices and not self.awaited:
            return bool(self.free)
        return bool(self._free_for(function.devices))

    def lends(self, function: BatchFunction) -> bool:
        """Whether a device can be lent for other work with the function without disturbing calls on several devices."""
        return not self.reserved and self.takes(function)

    def _free_for(self, together: Collection[str]) -> Sequence[Device]:
        """The free devices for a call: all that it needs together, or none; if it needs one, all to choose from."""
        free = [device for device in self.free if device not in self.awaited] if self.awaited else self.free
        if not together:
            return free
        slots = self._slots_of(together)
        return slots if self.reserved.isdisjoint(together) and all(each in free for each in slots) else ()

    def _slots_of(self, together: Collection[str]) -> Sequence[Device]:
        """The slots of devices that are needed together; the first slot if there are none on any of them."""
        return [each for each in self._devices if each.name in together] or self._devices[: bool(together)]

    def rows_for_next(self, lane: Lane, rows: int) -> int:
        """The rows of the next batch of `lane`, of `rows` allowed ones, so that all idle hardware gets a share."""
        waiting = min(lane.rows, rows)
        idle = sum([not self._busy_hardware[each] for each in self._hardware])
        shard = shard_rows(waiting, idle, lane.costs.curve)
        return shard if shard < waiting else rows

    def start(
        self, batch: BatchInFlight, now: float, expected_s: float, ended: Callable[[BatchInFlight, Execution], None]
    ) -> None:
        """Gives the batch, whose call is expected to take `expected_s`, to a free device, or to all that it needs.

        `ended` is called on the event loop when these are free again. Raises whatever a device raises that takes no
        work; then the batch's requests are failed. Raises RuntimeError: they are not free.
        """
        together = batch.function.devices
        devices = self._take(together)
        device = devices[0]
        self._busy[batch] = devices, now + expected_s, now
        batch.calls_beside = len(self._busy)

        def done(execution: Execution) -> None:
            self._give_back(devices, together)
            del self._busy[batch]
            for each in devices:
                self._busy_s[each.name, batch.key.model] += self._clock() - now
            ended(batch, execution)

        try:
            device.start(partial(execute, batch.function, batch.requests, self._clock, device.replica), done)
        except Exception:
            self._give_back(devices, together)
            del self._busy[batch]
            batch.fail(f"Device {device.name} takes no work")
            raise

    def lend(self, work: Callable[[], T], done: Callable[[T], None], together: Collection[str] = ()) -> None:
        """Runs other work than a batch on a free device, or with all those that it needs together.

        `done` is called when these are free again. Raises whatever a device raises that takes no work.
        """
        devices = self._take(together)

        def ended(result: T) -> None:
            self._give_back(devices, together)
            done(result)
            if self.on_return is not None:
                self.on_return()

        try:
            devices[0].start(work, ended)
        except Exception:
            self._give_back(devices, together)
            raise

    def _take(self, together: Collection[str] = ()) -> Sequence[Device]:
        """The free devices that a call needs together, or one, on the hardware with the fewest batches in flight."""
        devices = self._free_for(together)
        if not together and len(devices) > 1:
            devices = (min(devices, key=lambda each: self._busy_hardware[each.hardware]),)
        devices = tuple(devices)
        if not devices:
            raise RuntimeError("No device is free for the call")  # nothing may be reserved for it then
        for device in devices:
            self.free.remove(device)
            self._busy_hardware[device.hardware] += 1
        self.reserved.update(together)
        return devices

    def _give_back(self, devices: Sequence[Device], together: Collection[str]) -> None:
        self.free += devices
        for device in devices:
            self._busy_hardware[device.hardware] -= 1
        self.reserved.difference_update(together)

    def remaining_s(self, now: float) -> list[float]:
        """The seconds that each busy device is expected to take for its batch from now on."""
        return [max(0.0, end_s - now) for devices, end_s, _ in self._busy.values() for _ in devices]

    # --- how busy they are ---

    def count_inline(self, model: str, seconds: float) -> None:
        """Counts a call that was made on the event loop, without a slot: its seconds are those of the first device."""
        self._busy_s[self._devices[0].name, model] += seconds

    def busy_s(self) -> Mapping[tuple[str, str], float]:
        """Seconds in which batches kept the slots of each device busy, by the device's name and the model.

        Batches in flight count up to now, so it never falls. Of models that are no longer served it has the last ones
        that went, so that names which come and go take no memory.
        """
        busy_s, now = self._busy_s.copy(), self._clock()
        for batch, (devices, _, began_s) in self._busy.items():
            for each in devices:
                busy_s[each.name, batch.key.model] += now - began_s
        return busy_s

    def model_came(self, model: str) -> None:
        """Notes that a version of the model is served from now on."""
        self._gone.pop(model, None)

    def model_went(self, model: str) -> None:
        """Notes that no version of the model is served from now on."""
        self._gone[model] = None
        if len(self._gone) > _GONE_KEPT:
            oldest = next(iter(self._gone))
            del self._gone[oldest]
            for key in [each for each in self._busy_s if each[1] == oldest]:
                del self._busy_s[key]

    def slots(self) -> Mapping[str, tuple[int, int]]:
        """The slots by the device's name: how many there are, and how many of them are free."""
        free = Counter([each.name for each in self.free])
        return {name: (slots, free[name]) for name, slots in Counter([each.name for each in self._devices]).items()}

    def failures(self, now: float) -> list[str]:
        return [failure for device in self._devices if (failure := device.failure(now))]

    def close(self) -> None:
        for device in self._devices:
            device.close()

    def __repr__(self) -> str:
        busy = "".join(f", {_names(devices)}: {batch!r}" for batch, (devices, *_) in self._busy.items())
        return f"<DeviceSlots {len(self.free)} of {self.count} free{busy}>"


def _names(devices: Sequence[Device]) -> str:
    return "+".join(dict.fromkeys(device.name for device in devices))
