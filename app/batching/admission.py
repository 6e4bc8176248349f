"""How long would it take until a request that came now is answered? Pure.

The rows that wait are counted by lane, never one by one; of a lane whose front alone is more urgent the share that goes
first is estimated. What was not measured yet counts as nothing, so that nobody is refused by guess. Calls that vary are
expected to take longer than their average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil

from app.batching.lane import Lane
from app.batching.pending import PendingRequest


def seconds_to_answer(
    request: PendingRequest,
    lanes: Iterable[Lane],
    busy_s: Sequence[float],
    devices: int,
    most_rows: Callable[[Lane], int],
) -> float:
    """For a request that waits in one of the `lanes` already.

    Args:
        busy_s: how long each call under way will still take.
        devices: how many calls can be under way at the same time.
        most_rows: the rows of a full batch of a lane.
    """
    lane = request.lane
    if lane is None or lane.curve is None:
        return 0.0
    urgency_s = request.urgency_s
    rows = _rows_before(lane, request) + request.weight + lane.unfilled(request.weight)
    wait_s = sum(busy_s) / devices if len(busy_s) == devices else 0.0
    own_s = _calls_before(rows, most_rows(lane)) * lane.curve.call_s(most_rows(lane))  # meanwhile others' calls fill
    for other in sorted(lanes, key=_urgency_s):
        if other is not lane:
            rows_before = _rows_more_urgent(other, urgency_s)
            wait_s += _calls_s(other, rows_before, wait_s + own_s, most_rows(other)) / devices
    return (1 + lane.costs.margin) * (wait_s + _calls_s(lane, rows, wait_s, most_rows(lane)))


def _rows_before(lane: Lane, request: PendingRequest) -> float:
    """The rows that its own lane takes first."""
    others = lane.call_rows - min(request.weight, lane.largest) - lane.unfilled(request.weight)
    return others * _share(lane.head.rank_s, request.rank_s, lane.tail.rank_s) if lane.mixed else others


def _rows_more_urgent(lane: Lane, urgency_s: float) -> float:
    return lane.call_rows * _share(lane.urgency_s, urgency_s, lane.tail.urgency_s)


def _calls_s(lane: Lane, rows: float, wait_s: float, full_rows: int) -> float:
    """So many of its rows, in full calls but the last: that one has room for those who come meanwhile."""
    curve = lane.curve
    if curve is None or rows <= 0:
        return 0.0
    calls_before = _calls_before(rows, full_rows)
    before_s = calls_before * curve.call_s(full_rows)
    last_rows = rows - calls_before * full_rows
    if wait_s + before_s:
        last_rows += lane.costs.rows_per_s * (wait_s + before_s)
    return before_s + curve.call_s(ceil(min(last_rows, full_rows)))


def _calls_before(rows: float, full_rows: int) -> int:
    """How many full calls are done before that of the last row."""
    return ceil(rows / full_rows) - 1


def _share(first: float, value: float, last: float) -> float:
    """How much of what lies evenly between first and last is before the value."""
    if value < first:
        return 0.0
    return min(1.0, (value - first) / (last - first)) if last > first else 1.0


def _urgency_s(lane: Lane) -> float:
    return lane.urgency_s
