"""The acceptance of requests: they are checked, queued, and watched until they are answered, cancelled or expire.

The checks come in order of their cost. Last comes whether the request would be late. That needs its place in the queue,
so it is queued first, and leaves the queue again if it is rejected (admission.py). No clock.
"""

from __future__ import annotations

from app.batching.admission import not_accepted, rejection_cause
from app.batching.deadlines import Expiry
from app.batching.dispatch.completion import Completion
from app.batching.dispatch.dispatch_loop import DispatchLoop
from app.batching.function import BatchFunction
from app.batching.request import LaneKey, LaterSteps, PendingRequest, RequestHandle
from app.batching.state import BatchingState
from app.core.errors import ServingError
from app.core.events import RequestsRefused


class Acceptance:
    """The way of a request into the queue, and out of it when its caller leaves."""

    def __init__(self, state: BatchingState, completion: Completion, expiry: Expiry, dispatch: DispatchLoop) -> None:
        self._queue, self._admission, self._suspects = state.queue, state.admission, state.suspects
        self._drain, self._listener = state.drain, state.listener
        self._completion = completion
        self._expiry = expiry
        self._dispatch = dispatch

    def accept(
        self,
        key: LaneKey,
        function: BatchFunction,
        request: PendingRequest,
        now: float,
        later: LaterSteps | None = None,
    ) -> RequestHandle:
        """Queues a request.

        Args:
            later: the steps that follow, if this is the first step of a larger request: it is judged for all.

        Raises: as Batcher.submit. Nothing was queued.
        """
        # 1. Is it in time, and are requests accepted at all?
        if self._drain.begun or request.deadline_s <= now:
            raise not_accepted(draining=self._drain.begun)

        # 2. Is there room? First steps that begin side by side have room since the first of them was queued.
        if self._suspects.until_s and self._suspects.has(request.caller, now):
            key = key._replace(suspect=True)  # it shares no calls with other callers' requests
        room_found = later is not None and later.waiting_rows > 0
        if later is not None and not room_found:
            self._queue.check_room(request, later.models)
        self._queue.push(key, function, request, admitted=room_found)

        # 3. Would it be late, where it stands now?
        if self._admission is not None:
            self._admission.check(request, now, later)

        self._expiry.watch(request)
        self._dispatch.soon()
        return RequestHandle(request, self.cancel)

    def add(self, key: LaneKey, function: BatchFunction, request: PendingRequest, now: float) -> RequestHandle:
        """Queues a later step of an accepted request, whether there is room or not."""
        if self._suspects.until_s and self._suspects.has(request.caller, now):
            key = key._replace(suspect=True)
        self._queue.push(key, function, request, admitted=True)
        self._expiry.watch(request)
        self._dispatch.soon()
        return RequestHandle(request, self.cancel)

    def accept_part(self, request: PendingRequest) -> RequestHandle:
        """Returns the handle of a part that the queue took off a step that several requests take together."""
        self._expiry.watch(request)
        return RequestHandle(request, self.cancel)

    def check_flow(self, request: PendingRequest, needs: LaterSteps, now: float) -> None:
        """The checks of a request that is not queued itself; its calls (`needs`) will be.

        Raises: as Batcher.submit.
        """
        if self._drain.begun or request.deadline_s <= now:
            raise not_accepted(draining=self._drain.begun)
        if not needs.waiting_rows:
            self._queue.check_room(request, needs.models)
        if self._admission is not None:
            self._admission.check_flow(request.deadline_s - now, needs)

    def tell_rejected(self, error: ServingError, requests: int = 1) -> None:
        """Tells the listener why requests were rejected: the error that `accept` or `check_flow` raised."""
        cause = rejection_cause(error)
        if cause:
            self._listener(RequestsRefused(cause, requests))

    def cancel(self, request: PendingRequest) -> bool:
        """Removes a request from the queue; returns whether it waited there.

        A batch that is being computed stays whole: its other requests need it.
        """
        waited = self._queue.remove(request)
        if waited:
            request.release()
        self._completion.on_cancel()
        return waited
