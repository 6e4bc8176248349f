"""Admission: rejects a request at once if it cannot finish before its deadline. No I/O, no clock.

`seconds_to_answer` estimates the time until a new request is answered. It counts waiting rows by lane, never one by
one; of a lane that is only partly more urgent it estimates the share that is scheduled first. Costs that were not
measured count as 0, so no request is rejected by a guess. The more calls vary, the longer they are expected to take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil
from operator import attrgetter

from app.batching.devices import DeviceSlots
from app.batching.policy import HEADROOM
from app.batching.queue import Lane, RequestQueue
from app.batching.request import PendingRequest
from app.batching.scheduler import Scheduler
from app.core.errors import DeadlineExceeded, RequestTooLarge, ShuttingDown, WouldBeLate


def check_accepting(rows: int, max_rows: int, deadline_s: float, now: float, *, draining: bool) -> None:
    """The checks before a request is queued. Raises ShuttingDown, RequestTooLarge or DeadlineExceeded."""
    if draining:
        raise ShuttingDown("The server is shutting down")
    if rows > max_rows:
        raise RequestTooLarge(f"The request has {rows} rows; the queue holds at most {max_rows}")
    if deadline_s <= now:
        raise DeadlineExceeded("The request's time was over when it arrived")


def check_deadline(
    request: PendingRequest, queue: RequestQueue, slots: DeviceSlots, scheduler: Scheduler, now: float
) -> None:
    """The check of a request that is queued already.

    Raises:
        WouldBeLate: it is expected to miss its deadline, and was removed from the queue.
    """
    # 1. An idle server (no batch in flight, nothing else waits) takes every request; otherwise Ferry would never learn
    #    that the model became faster.
    remaining_s = slots.remaining_s(now)
    if not remaining_s and queue.rows == request.weight:
        return

    # 2. By the scheduling keys of all lanes.
    time_s = request.deadline_s - now
    most_s = HEADROOM * time_s
    assert request.lane is not None  # noqa: S101 - it waits
    lane = queue.lane(request.lane)
    needed_s = seconds_to_answer(request, lane, queue.lanes, remaining_s, slots.count, scheduler.most_rows)

    # 3. By the weight of its model, which holds however urgent the requests of other models are.
    if needed_s > most_s and scheduler.fair_queueing:
        model = lane.key.model
        own_lanes = [each for each in queue.lanes if each.key.model == model]
        alone_s = seconds_to_answer(request, lane, own_lanes, remaining_s, slots.count, scheduler.most_rows)
        share = scheduler.fair_queueing.share(model, {each.key.model for each in queue.lanes})
        needed_s = min(needed_s, alone_s / share)

    if needed_s > most_s:
        queue.remove(request)
        error = WouldBeLate(
            f"The request has {1000 * time_s:.0f} ms left, and answers take {1000 * needed_s:.0f} ms at the moment"
        )
        error.retry_after_s = needed_s - most_s
        raise error


def seconds_to_answer(  # noqa: PLR0917 - the whole state of the queue
    request: PendingRequest,
    lane: Lane,
    lanes: Iterable[Lane],
    remaining_s: Sequence[float],
    devices: int,
    most_rows: Callable[[Lane], int],
) -> float:
    """The time until the answer of a request that waits in `lane`, one of the `lanes`.

    Args:
        remaining_s: how long each call in flight will still take.
        devices: how many calls can be in flight at the same time.
        most_rows: the rows of a full batch of a lane.
    """
    curve = lane.costs.curve
    if curve is None:
        return 0.0

    # 1. The calls in flight, and the calls of its own lane before its own.
    scheduling_key_s = request.scheduling_key_s
    rows = _rows_before(lane, request) + request.weight + lane.unfilled(request.weight)
    wait_s = sum(remaining_s) / devices if len(remaining_s) == devices else 0.0
    own_s = _calls_before(rows, most_rows(lane)) * curve.call_s(most_rows(lane))

    # 2. The calls of other lanes that are more urgent; requests that come meanwhile fill them.
    for other in sorted(lanes, key=attrgetter("scheduling_key_s")):
        if other is not lane:
            share = _share(other.scheduling_key_s, scheduling_key_s, other.last.scheduling_key_s)
            wait_s += _calls_s(other, other.call_rows * share, wait_s + own_s, most_rows(other)) / devices

    # 3. Its own lane up to its own call, and what calls vary.
    return (1 + lane.costs.margin) * (wait_s + _calls_s(lane, rows, wait_s, most_rows(lane)))


def _rows_before(lane: Lane, request: PendingRequest) -> float:
    """The rows that its own lane takes before it."""
    others = lane.call_rows - min(request.weight, lane.max_rows) - lane.unfilled(request.weight)
    if not lane.reordered:
        return others
    return others * _share(lane.first.order_key_s, request.order_key_s, lane.last.order_key_s)


def _calls_s(lane: Lane, rows: float, wait_s: float, full_rows: int) -> float:
    """The seconds for `rows` rows of a lane in full calls; the last call has room for rows that come meanwhile."""
    curve = lane.costs.curve
    if curve is None or rows <= 0:
        return 0.0
    calls_before = _calls_before(rows, full_rows)
    before_s = calls_before * curve.call_s(full_rows)
    last_rows = rows - calls_before * full_rows
    if wait_s + before_s:
        last_rows += lane.costs.rows_per_s * (wait_s + before_s)
    return before_s + curve.call_s(ceil(min(last_rows, full_rows)))


def _calls_before(rows: float, full_rows: int) -> int:
    """The full calls before the call of the last row."""
    return ceil(rows / full_rows) - 1


def _share(first: float, value: float, last: float) -> float:
    """The share of what is spread evenly from `first` to `last` that lies before `value`."""
    if value < first:
        return 0.0
    return min(1.0, (value - first) / (last - first)) if last > first else 1.0
