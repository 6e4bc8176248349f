"""Who is refused before anything is done for them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from app.batching.admission import seconds_to_answer
from app.batching.pending import PendingRequest
from app.batching.policy import HEADROOM
from app.batching.queue import RequestQueue
from app.batching.schedule import Schedule
from app.batching.slots import Slots
from app.errors import DeadlineExceeded, RequestTooLarge, ShuttingDown, WouldBeLate


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
    needed_s = seconds_to_answer(request, queue.lanes, busy_s, slots.count, schedule.most_rows)
    if needed_s > most_s and schedule.shares:
        needed_s = min(needed_s, _seconds_by_share(request, queue, slots, schedule, busy_s))
    if needed_s > most_s:
        queue.remove(request)
        error = WouldBeLate(
            f"The request has {1000 * time_s:.0f} ms left, and answers take {1000 * needed_s:.0f} ms at the moment"
        )
        error.retry_after_s = needed_s - most_s
        raise error


def _seconds_by_share(
    request: PendingRequest, queue: RequestQueue, slots: Slots, schedule: Schedule, busy_s: Sequence[float]
) -> float:
    """How long it takes by its model's share alone, whatever others are more urgent."""
    model = request.lane.key.model if request.lane is not None else ""
    own_lanes = [lane for lane in queue.lanes if lane.key.model == model]
    alone_s = seconds_to_answer(request, own_lanes, busy_s, slots.count, schedule.most_rows)
    return alone_s / schedule.shares.share(model, {lane.key.model for lane in queue.lanes})
