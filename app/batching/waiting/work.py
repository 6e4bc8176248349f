"""The work that waits: the seconds of the calls of all lanes, by how urgent the lanes are. No I/O, no clock.

A lane counts with all its calls at the key of its most urgent request. Keys are rounded to bands of 1/32 s, so the work
before a key is a sum over few bands, however many lanes there are. Lanes that changed are counted anew when the work
is asked for, and one by one if they become many; so neither a request nor a question pays for more than a few of them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor, inf

from app.batching.cost_model import CallSeconds
from app.batching.priority import DEFAULT_LEVEL, LEVEL_S
from app.batching.waiting.lane import Lane

_BANDS_PER_S = 32

#: No new request has a key further back than this, so older bands are one. More than the highest priority gives.
_PAST_S = DEFAULT_LEVEL * LEVEL_S

#: From this many bands on, those of the past are joined. Chosen.
_MANY_BANDS = 128

#: At most this many changed lanes are left to be counted by the next question. Chosen.
_MAX_CHANGED = 8


def call_seconds(lane: Lane, rows: float, wait_s: float, full_rows: int) -> CallSeconds:
    """The seconds for `rows` rows of a lane in full calls; the last call has room for rows that come meanwhile.

    Args:
        wait_s: how long they wait before the first of these calls.
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
    """The seconds of the calls that wait.

    Args:
        most_rows: the rows of a full call of a lane.
    """

    def __init__(self, most_rows: Callable[[Lane], int]) -> None:
        self._most_rows = most_rows
        self._changed: dict[Lane, None] = {}
        self._total = CallSeconds()
        self._models: dict[str, CallSeconds] = {}
        self._bands: dict[int, float] = {}
        self._past_s = 0.0  # the sum of all bands before this one
        self._past_end = -inf

    def changed(self, lane: Lane) -> None:
        """To be called when what waits in a lane has changed."""
        self._changed[lane] = None
        if len(self._changed) > _MAX_CHANGED:
            oldest = next(iter(self._changed))
            del self._changed[oldest]
            self._count(oldest)

    def gone(self, lane: Lane) -> None:
        """To be called when nothing waits in a lane any more."""
        self._changed.pop(lane, None)
        self._set(lane, None)

    def clear(self) -> None:
        """To be called when nothing waits at all: sums of rounded numbers begin at zero again."""
        if not self._models:
            return
        self._total = CallSeconds()
        self._models.clear()
        self._bands.clear()
        self._past_s = 0.0

    def before(self, key_s: float, lane: Lane, now: float) -> CallSeconds:
        """The work of lanes that are more urgent than `key_s`, without `lane`."""
        while self._changed:
            self._count(self._changed.popitem()[0])
        if len(self._bands) > _MANY_BANDS:
            self._join_past(now)
        band = floor(key_s * _BANDS_PER_S)
        seconds = self._past_s + sum([each for at, each in self._bands.items() if at <= band])
        assert lane.counted is not None  # noqa: S101 - it waits, and all lanes are counted now
        own_band, own = lane.counted
        if own_band <= band:
            seconds -= own.seconds
        return part_of(_difference(self._total, own), seconds)

    def of_others(self, lane: Lane) -> CallSeconds:
        """The work of all other lanes, as it was counted for `before`."""
        return _difference(self._total, CallSeconds() if lane.counted is None else lane.counted[1])

    def of_model(self, lane: Lane) -> CallSeconds:
        """The work of the other lanes of its model."""
        own = CallSeconds() if lane.counted is None else lane.counted[1]
        return _difference(self._models.get(lane.key.model, CallSeconds()), own)

    def _count(self, lane: Lane) -> None:
        work = call_seconds(lane, lane.call_rows, self._total.seconds, self._most_rows(lane))
        self._set(lane, (floor(lane.scheduling_key_s * _BANDS_PER_S), work))

    def _set(self, lane: Lane, counted: tuple[int, CallSeconds] | None) -> None:
        if lane.counted is not None:
            band, (seconds, variance) = lane.counted
            self._add(lane.key.model, band, -seconds, -variance)
        lane.counted = counted
        if counted is not None:
            band, (seconds, variance) = counted
            self._add(lane.key.model, band, seconds, variance)

    def _add(self, model: str, band: int, seconds: float, variance: float) -> None:
        total, own = self._total, self._models.get(model, CallSeconds())
        self._total = CallSeconds(total.seconds + seconds, total.variance + variance)
        self._models[model] = CallSeconds(own.seconds + seconds, own.variance + variance)
        if band < self._past_end:
            self._past_s += seconds
        else:
            self._bands[band] = self._bands.get(band, 0.0) + seconds

    def _join_past(self, now: float) -> None:
        self._past_end = max(self._past_end, floor((now - _PAST_S) * _BANDS_PER_S))
        for band in [each for each in self._bands if each < self._past_end]:
            self._past_s += self._bands.pop(band)


def _difference(whole: CallSeconds, part: CallSeconds) -> CallSeconds:
    return CallSeconds(max(0.0, whole.seconds - part.seconds), max(0.0, whole.variance - part.variance))


def part_of(whole: CallSeconds, seconds: float) -> CallSeconds:
    """This many seconds of calls, which vary as all do."""
    seconds = min(max(0.0, seconds), whole.seconds)
    return CallSeconds(seconds, whole.variance * seconds / whole.seconds) if seconds else CallSeconds()
