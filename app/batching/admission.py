"""Admission: a request that cannot finish before its deadline is rejected at once. No I/O, no clock.

`seconds_to_answer` estimates the time until a new request is answered. It looks at the request's lane and at the sum of
the work of all others (waiting/work.py), so it costs the same however many lanes and requests wait. A request that has
room in the next call of its lane comes as early as the most urgent one there. Where callers have fair shares, other
callers count for the work that comes before the request, however much they have waiting. A shape without known costs
counts as 0; the costs of a shape that was not called yet are guessed from one of about its size (function.py).

Calls vary independently of each other, so the deviations of a line of calls add by their squares: a single call may
take much longer than expected, a hundred calls together hardly. Some delays hit all calls (the machine slows down, time
passes between calls), and the cost of a single call does not show them. So admission also watches its own estimates, as
adaptive conformal inference does (Gibbs and Candes, 2021). Each answer that comes too late lengthens all estimates,
each answer in time shortens them a little, until only a small share comes late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import sqrt

from app.batching.costs.cost_model import DEVIATIONS, CallSeconds
from app.batching.devices import DeviceSlots
from app.batching.isolation import Isolations
from app.batching.policy import HEADROOM
from app.batching.queue import RequestQueue
from app.batching.request import LaterSteps, PendingRequest
from app.batching.scheduler import Scheduler
from app.batching.waiting.callers import Callers
from app.batching.waiting.lane import Lane
from app.batching.waiting.work import call_seconds, part_of
from app.core.errors import DeadlineExceeded, Overloaded, ServingError, ShuttingDown, WouldBeLate

#: The causes of rejections, as RequestsRefused names them. An error of another class is the request's own fault.
_CAUSES: Mapping[type[ServingError], str] = {
    ShuttingDown: "shutting_down",
    DeadlineExceeded: "expired",
    WouldBeLate: "late",
    Overloaded: "queue_full",
}


#: Requests are judged that have less than this many times the slowest call for each waiting row. Chosen: calls may take
#: longer than the slowest one, and the margin below is hardly larger.
_MARGIN = 2

#: How much of the slowest call is remembered at the next one: half of it after 69 calls. Chosen.
_FADE = 0.99

#: An answer tells how good the estimate was if it took more than this share of its request's time. Chosen: a request
#: that is accepted although estimates are _LONGEST_DELAY too long takes more.
_TELLING = 0.5

#: The estimates are lengthened by this share in the time of a deadline if all answers come late meanwhile: requests
#: that were accepted before come no earlier, so a larger step would go too far. Chosen, as is the share of batches that
#: may be late, and the bound: delays of other causes must not make admission reject everything.
_STEP, _MAY_BE_LATE, _LONGEST_DELAY = 0.2, 0.005, 1.5


def rejection_cause(error: ServingError) -> str:
    """The cause of a rejection, as RequestsRefused says it; empty if the request was at fault."""
    return _CAUSES.get(type(error), "")


def not_accepted(*, draining: bool) -> ServingError:
    """The error of a request that comes while the server drains, or after its deadline."""
    if draining:
        return ShuttingDown("The server is shutting down")
    return DeadlineExceeded("The request's time was over when it arrived")


class Admission:
    """The judge of deadlines: it rejects requests that would be late, and learns from answers.

    Judging costs time, and most requests have far more time than the waiting work can take: they are not judged.

    Attributes:
        slowest_call_s: hardly a call takes longer, of any function.
        delay: the factor by which answers come later than costs let expect.
    """

    def __init__(
        self,
        queue: RequestQueue,
        slots: DeviceSlots,
        scheduler: Scheduler,
        isolations: Isolations,
        clock: Callable[[], float],
    ) -> None:
        self._queue = queue
        self._slots = slots
        self._scheduler = scheduler
        self._isolations = isolations
        self._clock = clock
        self.slowest_call_s = 0.0
        self.delay = 1.0

    def expect(self, seconds: float) -> None:
        """Notes a call that begins, by its expected seconds."""
        self.slowest_call_s = max(self.slowest_call_s, seconds)

    def record(self, seconds: float, first: PendingRequest, ended_s: float) -> None:
        """Learns from a call that has ended; the first request of its batch is about to be answered."""
        self.record_seconds(seconds)
        time_s = first.deadline_s - first.arrival_s
        if first.judged and ended_s - first.arrival_s > _TELLING * time_s:
            late = self._clock() - first.arrival_s > HEADROOM * time_s  # the event loop may have waited for its core
            change = 1 - _MAY_BE_LATE if late else -_MAY_BE_LATE
            self.delay = min(max(1.0, self.delay + _STEP * seconds / time_s * change), _LONGEST_DELAY)

    def record_seconds(self, seconds: float) -> None:
        """Learns from a call that held no judged request."""
        self.slowest_call_s = max(seconds, self.slowest_call_s * _FADE)

    def check(self, request: PendingRequest, now: float, later: LaterSteps | None = None) -> None:
        """Judges a request that is queued already, if its time is short.

        Args:
            later: the steps that follow it.

        Raises:
            WouldBeLate: it is expected to miss its deadline, and was removed from the queue.
        """
        calls = 1 if later is None else 1 + later.calls
        most_calls = _MARGIN * (1 + bool(self._isolations.open)) * (self._queue.rows + calls * self._slots.count)
        if request.deadline_s - now < most_calls * self.slowest_call_s:
            self.check_deadline(request, now, later)

    def check_deadline(self, request: PendingRequest, now: float, later: LaterSteps | None = None) -> None:
        """The judgement of `check`, of any request that is queued already.

        Raises: as `check`.
        """
        queue, slots, scheduler = self._queue, self._slots, self._scheduler
        later_s, waiting_rows = (later.seconds(), later.waiting_rows) if later is not None else (0.0, 0)

        # 1. An idle server (no batch in flight, nothing else waits) takes every request; otherwise Ferry would never
        #    learn that the model became faster.
        remaining_s = slots.remaining_s(now)
        if not remaining_s and queue.rows == request.counted_rows + waiting_rows:
            return  # also where later steps take long: these learn their costs

        # 2. The calls ahead, by the scheduling keys of all lanes and by the fair order of callers.
        time_s = request.deadline_s - now - later_s
        most_s = HEADROOM * time_s
        assert request.lane is not None  # noqa: S101 - it waits
        lane = queue.lane(request.lane)
        flying_s = sum(remaining_s) / slots.count if len(remaining_s) == slots.count else 0.0
        ahead = self._calls_ahead(request, lane, flying_s)
        needed_s = seconds_to_answer(request, lane, ahead, remaining_s, slots.count, scheduler.most_rows)

        # 3. The weight of its model, which holds however urgent the requests of other models are.
        if needed_s > most_s and scheduler.fair_queueing.weights:
            of_model = min(ahead, queue.work.of_model(lane))
            alone_s = seconds_to_answer(request, lane, of_model, remaining_s, slots.count, scheduler.most_rows)
            needed_s = min(needed_s, alone_s / scheduler.fair_queueing.share(lane.key.model, queue.orders))

        # 4. Groups of rejected batches wait outside the queue, and alternate with the calls before its own.
        own_s = lane.costs.call_s(request.counted_rows)
        needed_s += min(self._isolations.expected_s, max(0.0, needed_s - own_s))
        needed_s *= self.delay

        # 5. The verdict.
        if needed_s > most_s:
            queue.remove(request)
            raise WouldBeLate(
                f"The request has {1000 * time_s:.0f} ms left, and answers take {1000 * needed_s:.0f} ms at the moment"
            ).retry_in(needed_s - most_s)
        request.judged = True

    def _calls_ahead(self, request: PendingRequest, lane: Lane, flying_s: float) -> CallSeconds:
        """The calls of other lanes that come before a request of `lane`."""
        queue, callers = self._queue, self._queue.callers
        is_fair = callers is not None and callers.waiting > 1
        shares_next_call = not is_fair and _rows_to(request, lane) <= self._scheduler.most_rows(lane)
        key_s = lane.scheduling_key_s if shares_next_call else request.scheduling_key_s
        ahead = queue.work.before(key_s, lane, flying_s, self._slots.count)
        return _ahead_in_fair_order(request, queue, callers, lane, ahead) if callers and is_fair else ahead

    def check_flow(self, time_s: float, needs: LaterSteps) -> None:
        """Judges a request that is not queued itself; its calls (`needs`) will be.

        Args:
            time_s: the time that it has left.

        Raises:
            WouldBeLate: its calls are expected to take longer.
        """
        short = time_s < _MARGIN * needs.calls * self.slowest_call_s
        idle = self._queue.rows <= needs.waiting_rows and self._slots.idle  # then the request is taken: its calls teach
        if short and not idle and time_s < needs.seconds():
            raise WouldBeLate(f"The request has {1000 * time_s:.0f} ms left, and is expected to take longer")


def _ahead_in_fair_order(
    request: PendingRequest, queue: RequestQueue, callers: Callers, lane: Lane, ahead: CallSeconds
) -> CallSeconds:
    """The calls of other lanes that come before a request where callers have fair shares.

    Args:
        ahead: the calls that come before it by their scheduling keys.
    """
    assert lane.callers is not None  # noqa: S101 - callers are told apart
    here_s, elsewhere_s = lane.callers.work_s(request.caller)
    others = queue.work.of_others(lane)

    # 1. The more urgent calls of its own caller.
    own_s = min(ahead.seconds, elsewhere_s)

    # 2. The calls of all other callers: as much, by weight, as its own caller gets before it, and a call of each.
    before_s = own_s + max(0.0, here_s - lane.seconds(request.counted_rows))
    their_weight = callers.weight / lane.callers.weight(request.caller) - 1
    most_s = their_weight * before_s + (callers.waiting - 1) * callers.longest_s
    others_s = min(max(0.0, others.seconds - elsewhere_s), most_s)
    return part_of(others, own_s + others_s)


def seconds_to_answer(  # noqa: PLR0917 - the whole state of the queue
    request: PendingRequest,
    lane: Lane,
    ahead: CallSeconds,
    remaining_s: Sequence[float],
    devices: int,
    most_rows: Callable[[Lane], int],
) -> float:
    """The time until the answer of a request that waits in `lane`.

    Args:
        ahead: the calls of other lanes that are more urgent.
        remaining_s: the seconds that each call in flight will still take.
        devices: the number of calls that can be in flight at the same time.
        most_rows: the rows of a full batch of a lane.
    """
    if lane.costs.curve is None:
        return 0.0

    # 1. The calls in flight, if they occupy all devices, and the calls of other lanes.
    flying_s = remaining_s if len(remaining_s) == devices else ()
    wait_s = (sum(flying_s) + ahead.seconds) / devices
    variance = (sum([(lane.costs.deviation * each) ** 2 for each in flying_s]) + ahead.variance) / devices**2

    # 2. The calls of its lane, up to its own.
    own_calls = call_seconds(lane, _rows_to(request, lane), wait_s, most_rows(lane))

    # 3. A margin, by how much calls vary.
    return wait_s + own_calls.seconds + DEVIATIONS * sqrt(variance + own_calls.variance)


def _rows_to(request: PendingRequest, lane: Lane) -> float:
    """The rows of the calls of its lane, up to its own."""
    return lane.rows_before(request) + request.counted_rows + lane.unfilled(request.counted_rows)
