"""Which requests are rejected at once: those that cannot finish before their deadline. Pure.

`seconds_to_answer` estimates the time until a new request is answered. It counts waiting rows by lane, never one by
one. Of a lane whose front alone is more urgent it estimates the share that goes first. Costs that were not measured
yet count as 0, so no request is rejected by guess. Calls that vary are expected to take longer than their average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil

from app.batching.devices import Slots
from app.batching.policy import HEADROOM
from app.batching.queue import Lane, RequestQueue
from app.batching.request import PendingRequest
from app.batching.scheduler import Schedule
from app.core.errors import DeadlineExceeded, RequestTooLarge, ShuttingDown, WouldBeLate


def check_open(rows: int, max_rows: int, deadline_s: float, now: float, *, draining: bool) -> None:
    """Raises ShuttingDown, RequestTooLarge or DeadlineExceeded."""
    if draining:
        raise ShuttingDown("The server is shutting down")
    if rows > max_rows:
        raise RequestTooLarge(f"The request has {rows} rows; the queue holds at most {max_rows}")
    if deadline_s <= now:
        raise DeadlineExceeded("The request's time was over when it arrived")


def check_in_time(request: PendingRequest, queue: RequestQueue, slots: Slots, schedule: Schedule, now: float) -> None:
    """Of a request that is queued already. An idle device takes all, or it would never learn that it became faster.

    Raises WouldBeLate, and takes it out of the queue, where it would foreseeably be late.
    """
    busy_s = slots.busy_s(now)
    if not busy_s and queue.rows == request.weight:
        return
    time_s = request.deadline_s - now
    most_s = HEADROOM * time_s
    assert request.lane is not None  # noqa: S101 - it waits
    lane = queue.lane(request.lane)
    needed_s = seconds_to_answer(request, lane, queue.lanes, busy_s, slots.count, schedule.most_rows)
    if needed_s > most_s and schedule.shares:
        needed_s = min(needed_s, _seconds_by_share(request, lane, queue, slots, schedule, busy_s))
    if needed_s > most_s:
        queue.remove(request)
        error = WouldBeLate(
            f"The request has {1000 * time_s:.0f} ms left, and answers take {1000 * needed_s:.0f} ms at the moment"
        )
        error.retry_after_s = needed_s - most_s
        raise error


def _seconds_by_share(  # noqa: PLR0917 - the whole state of the queue
    request: PendingRequest, lane: Lane, queue: RequestQueue, slots: Slots, schedule: Schedule, busy_s: Sequence[float]
) -> float:
    """How long it takes by its model's share alone, whatever others are more urgent."""
    model = lane.key.model
    own_lanes = [lane for lane in queue.lanes if lane.key.model == model]
    alone_s = seconds_to_answer(request, lane, own_lanes, busy_s, slots.count, schedule.most_rows)
    return alone_s / schedule.shares.share(model, {lane.key.model for lane in queue.lanes})


def seconds_to_answer(  # noqa: PLR0917 - the whole state of the queue
    request: PendingRequest,
    lane: Lane,
    lanes: Iterable[Lane],
    busy_s: Sequence[float],
    devices: int,
    most_rows: Callable[[Lane], int],
) -> float:
    """For a request that waits in `lane` already, one of the `lanes`.

    Args:
        busy_s: how long each call under way will still take.
        devices: how many calls can be under way at the same time.
        most_rows: the rows of a full batch of a lane.
    """
    if lane.curve is None:
        return 0.0
    scheduling_key_s = request.scheduling_key_s
    rows = _rows_before(lane, request) + request.weight + lane.unfilled(request.weight)
    wait_s = sum(busy_s) / devices if len(busy_s) == devices else 0.0
    own_s = _calls_before(rows, most_rows(lane)) * lane.curve.call_s(most_rows(lane))  # meanwhile others' calls fill
    for other in sorted(lanes, key=_urgency_s):
        if other is not lane:
            rows_before = _rows_more_urgent(other, scheduling_key_s)
            wait_s += _calls_s(other, rows_before, wait_s + own_s, most_rows(other)) / devices
    return (1 + lane.costs.margin) * (wait_s + _calls_s(lane, rows, wait_s, most_rows(lane)))


def _rows_before(lane: Lane, request: PendingRequest) -> float:
    """The rows that its own lane takes first."""
    others = lane.call_rows - min(request.weight, lane.largest) - lane.unfilled(request.weight)
    return others * _share(lane.head.order_key_s, request.order_key_s, lane.tail.order_key_s) if lane.mixed else others


def _rows_more_urgent(lane: Lane, scheduling_key_s: float) -> float:
    return lane.call_rows * _share(lane.scheduling_key_s, scheduling_key_s, lane.tail.scheduling_key_s)


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
    return lane.scheduling_key_s
