"""The waiting work: the seconds of the calls of all lanes, by how urgent the lanes are. No I/O, no clock.

A lane counts with all its calls at the key of its most urgent request. Its rows are counted as they will be when it is
served: with the rows that come while the calls in flight and the calls of more urgent lanes are made. Work is summed by
keys (prefix_sums.py), which are rounded to milliseconds, so a query costs the same however many lanes there are. Lanes
that changed are counted anew by the next query, or one by one once they are many; so neither a request nor a query
counts more than a few lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor

from app.batching.costs.cost_model import CallSeconds
from app.batching.waiting.lane import NOT_COUNTED, Lane
from app.batching.waiting.prefix_sums import PrefixSums

_PER_S = 1024

#: At most this many changed lanes are left to be counted by the next query. Chosen.
_MAX_CHANGED = 8


def call_seconds(lane: Lane, rows: float, wait_s: float, full_rows: int) -> CallSeconds:
    """The seconds of full calls for `rows` rows of a lane; the last call has room for rows that come meanwhile.

    Args:
        wait_s: the time that the rows wait before the first of these calls.
        full_rows: the rows of a full call.
    """
    costs = lane.costs
    curve = costs.curve
    if curve is None or rows <= 0:
        return CallSeconds()
    full_calls = ceil(rows / full_rows) - 1
    full_s = curve.call_s(full_rows)
    last_rows = rows - full_calls * full_rows
    if wait_s + full_calls * full_s:
        last_rows += costs.rows_per_s * (wait_s + full_calls * full_s)
    last_s = curve.call_s(ceil(min(last_rows, full_rows)))
    squares = full_calls * full_s**2 + last_s**2
    return CallSeconds(full_calls * full_s + last_s, costs.deviation**2 * squares)


class WaitingWork:
    """The sum of the waiting work.

    Args:
        most_rows: the rows of a full call of a lane.
    """

    def __init__(self, most_rows: Callable[[Lane], int]) -> None:
        self._most_rows = most_rows
        self._changed: dict[Lane, None] = {}
        self._total = CallSeconds()
        self._models: dict[str, CallSeconds] = {}
        self._seconds = PrefixSums()  # by key
        self._flying_s = 0.0  # as when the work was asked for last
        self._devices = 1

    def changed(self, lane: Lane) -> None:
        """Notes that the requests of a lane have changed: its work is counted anew."""
        self._changed[lane] = None
        if len(self._changed) > _MAX_CHANGED:
            oldest = next(iter(self._changed))
            del self._changed[oldest]
            self._count(oldest)

    def gone(self, lane: Lane) -> None:
        """Takes out the work of a lane in which no request waits any more."""
        self._changed.pop(lane, None)
        if lane.counted is not NOT_COUNTED:
            self._set(lane, NOT_COUNTED)

    def clear(self) -> None:
        """Sets all sums to zero: no request waits at all, and sums of rounded numbers may have drifted from it."""
        if not self._models:
            return
        self._total = CallSeconds()
        self._models.clear()
        self._seconds.clear()

    def before(self, key_s: float, lane: Lane, flying_s: float = 0.0, devices: int = 1) -> CallSeconds:
        """The work of lanes that are more urgent than `key_s`, without `lane`.

        Args:
            flying_s: the seconds for which the calls in flight keep all devices busy.
            devices: the number of calls that can be in flight at the same time.
        """
        self._flying_s, self._devices = flying_s, devices
        while self._changed:
            self._count(self._changed.popitem()[0])
        return part_of(self.of_others(lane), self._seconds_before(_place(key_s) + 1, lane))

    def of_others(self, lane: Lane) -> CallSeconds:
        """The work of all other lanes, as it was counted for `before`."""
        return _difference(self._total, lane.counted[1])

    def of_model(self, lane: Lane) -> CallSeconds:
        """The work of the other lanes of its model."""
        return _difference(self._models.get(lane.key.model, CallSeconds()), lane.counted[1])

    def _count(self, lane: Lane) -> None:
        place = _place(lane.scheduling_key_s)
        wait_s = self._flying_s + self._seconds_before(place, lane) / self._devices
        self._set(lane, (place, call_seconds(lane, lane.call_rows, wait_s, self._most_rows(lane))))

    def _seconds_before(self, place: int, lane: Lane) -> float:
        """The seconds at all lower places, without the lane's seconds."""
        lane_place, lane_calls = lane.counted
        return max(0.0, self._seconds.before(place) - (lane_calls.seconds if lane_place < place else 0.0))

    def _set(self, lane: Lane, counted: tuple[int, CallSeconds]) -> None:
        (old_place, old), (place, now) = lane.counted, counted
        lane.counted = counted
        if place == old_place:
            self._seconds.add(place, now.seconds - old.seconds, 0)
        else:
            if old_place:
                self._seconds.add(old_place, -old.seconds, -1)
            if place:
                self._seconds.add(place, now.seconds)
        self._add(lane.key.model, now.seconds - old.seconds, now.variance - old.variance)

    def _add(self, model: str, seconds: float, variance: float) -> None:
        total, of_model = self._total, self._models.get(model, CallSeconds())
        self._total = CallSeconds(total.seconds + seconds, total.variance + variance)
        self._models[model] = CallSeconds(of_model.seconds + seconds, of_model.variance + variance)


def _place(key_s: float) -> int:
    """The place of a key; keys from before the clock began have place 1."""
    return 1 + max(0, floor(key_s * _PER_S))


def _difference(whole: CallSeconds, part: CallSeconds) -> CallSeconds:
    return CallSeconds(max(0.0, whole.seconds - part.seconds), max(0.0, whole.variance - part.variance))


def part_of(whole: CallSeconds, seconds: float) -> CallSeconds:
    """A part of the calls, `seconds` long, which varies as the whole does."""
    seconds = min(max(0.0, seconds), whole.seconds)
    return CallSeconds(seconds, whole.variance * seconds / whole.seconds) if seconds else CallSeconds()
