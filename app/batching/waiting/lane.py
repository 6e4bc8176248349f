"""A lane: requests that wait and may share a call. No I/O, no clock.

Adding, removing and finding the first and the most urgent request take O(log n) of n waiting requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Protocol

from app.batching.costs.cost_model import CallSeconds
from app.batching.function import BatchFunction
from app.batching.request import LaneKey, PendingRequest
from app.batching.waiting.priority_lines import PriorityLines

_serial = count()

NOT_COUNTED = 0, CallSeconds()


class FairOrder(Protocol):
    """The callers of a lane, in fair order (lane_callers.py, which imports this file)."""

    def add(self, request: PendingRequest) -> None: ...
    def remove(self, requests: Sequence[PendingRequest]) -> None: ...
    def requeue(self, request: PendingRequest, taken: int) -> None: ...
    def shrink(self, request: PendingRequest, taken: int) -> None: ...
    def __iter__(self) -> Iterator[PendingRequest]: ...
    def rows_before(self, request: PendingRequest, rows: int) -> float: ...
    def work_s(self, caller: str) -> tuple[float, float]: ...
    def weight(self, caller: str) -> float: ...


class Lane:
    """The waiting requests that may share a call: first come, first served, except for priorities and fairness.

    Attributes:
        callers: its requests by caller, in fair order. They, not the lane, are placed in the order of lanes then. None
            if only the order of arrival counts.
        start: its virtual time in the order of lanes; the same for all lanes that have no callers.
        has_parts: a request in it is computed in parts.
        max_rows: the most rows of a call, as when the lane was made: requests that came to be batched are not cut if
            batching has stopped since.
        deferred_rows: rows of large requests that will wait again, as they do not fit into the next call.
        unfilled_rows: the sum of `unfilled` over its requests.
        place: its entry in the order of lanes (lane_order.py); None if it has none.
        asleep: the lane is known not to be due.
        less_urgent: requests left since it was placed, so the lane may be less urgent than its place says.
        serial: of lanes that are equal otherwise, the one with the lowest number is first.
        counted: its place and seconds in the waiting work (work.py); place 0 if it is not counted.
    """

    __slots__ = (
        "_lines", "_lone", "asleep", "callers", "costs", "counted", "deferred_rows", "function", "has_parts", "key",
        "less_urgent", "max_rows", "place", "rows", "serial", "unfilled_rows",
    )  # fmt: skip

    start = 0.0

    def __init__(self, key: LaneKey, function: BatchFunction) -> None:
        self.key = key
        self.function = function
        self.costs = function.costs(key.shape)
        self.max_rows = function.max_rows
        self.rows = 0
        self.deferred_rows = 0
        self.unfilled_rows = 0
        self.has_parts = False
        self.place: object = None
        self.asleep = self.less_urgent = False
        self.serial = next(_serial)
        self.counted = NOT_COUNTED
        self._lone: PendingRequest | None = None  # a lone request needs no line
        self._lines: PriorityLines | None = None  # of several requests
        self.callers: FairOrder | None = None

    @property
    def lane(self) -> Lane:
        return self

    # --- its requests ---

    def add(self, request: PendingRequest) -> bool:
        """Puts the request behind all that are to be taken before it; True if the lane may be more urgent by it.

        Where the lane has callers, these place it; the caller of this method does not.
        """
        request.lane = self.key
        if self._lone is None and self._lines is None:
            self._lone, urgent = request, True
        else:
            urgent = self._lined_up().add(request)
        if self.callers is None:
            return urgent
        self.callers.add(request)
        return False

    def remove(self, requests: Sequence[PendingRequest]) -> None:
        """The requests leave the lane, taken or not."""
        self.less_urgent = True
        if self._lines is not None:
            self._lines.remove(requests)
        elif requests:
            self._lone = None
        if self.callers is not None:
            self.callers.remove(requests)
        for request in requests:
            request.lane = None

    def requeue(self, request: PendingRequest, taken: int, now: float) -> None:
        """Puts the rest of a request behind the waiting ones: `taken` rows of it were taken."""
        request.entered_s = now
        self.has_parts = self.less_urgent = True
        if self._lines is not None:
            self._lines.requeue(request)
        if self.callers is not None:
            self.callers.requeue(request, taken)

    def shrink(self, request: PendingRequest, taken: int) -> None:
        """The rest of a request keeps its place: `taken` rows of it were taken."""
        if self.callers is not None:
            self.callers.shrink(request, taken)

    def _lined_up(self) -> PriorityLines:
        """The lines of its requests; a lone one enters them."""
        if self._lines is None:
            self._lines = PriorityLines()
            if self._lone is not None:
                self._lines.add(self._lone)
                self._lone = None
        return self._lines

    def __len__(self) -> int:
        return len(self._lines) if self._lines is not None else int(self._lone is not None)

    def __iter__(self) -> Iterator[PendingRequest]:
        """The lane's requests, in the order in which they are to be taken."""
        if self.callers is not None:
            return iter(self.callers)
        return iter(self._lined_up() if self._lone is None else (self._lone,))

    @property
    def first(self) -> PendingRequest:
        return next(iter(self)) if self._lone is None else self._lone

    # --- its rows ---

    def deferred(self, rows: int) -> int:
        """The rows of a request of `rows` rows that do not fit into its first part."""
        return max(0, rows - self.max_rows)

    def unfilled(self, rows: int) -> int:
        """A request's share of the rows that a call lacks if it is filled with requests of its size.

        Example: in calls of 64 rows a request of 33 leaves 31 unfilled. Smaller requests may fill these: it is an upper
        bound.
        """
        return 0 if rows > self.max_rows else -(-self.max_rows // (self.max_rows // rows)) - rows

    @property
    def call_rows(self) -> int:
        """The rows of the calls that will be made for its requests, without the rest of large requests."""
        return self.rows - self.deferred_rows + self.unfilled_rows

    def seconds(self, rows: int) -> float:
        """The expected seconds of the calls for `rows` rows; 0 if that is unknown."""
        full, rest = divmod(rows, self.max_rows)
        return full * self.costs.call_s(self.max_rows) + (self.costs.call_s(rest) if rest else 0.0)

    @property
    def row_s(self) -> float:
        """The seconds of the next call for each of its rows; a row of unknown cost counts as a second."""
        rows = max(1, min(self.rows, self.max_rows))
        return self.seconds(rows) / rows or 1.0

    def rows_before(self, request: PendingRequest) -> float:
        """The rows of the calls that are made before the first call of a request that was added last."""
        others = self.call_rows - min(request.counted_rows, self.max_rows) - self.unfilled(request.counted_rows)
        if self.callers is not None:
            return self.callers.rows_before(request, others)
        if self._lines is None or not self._lines.reordered:
            return others
        first_s, last_s = self._lines.order_keys_s
        # Rows are spread evenly over the order keys, as far as is known.
        return others * ((request.order_key_s - first_s) / (last_s - first_s) if last_s > first_s else 1.0)

    # --- its times ---

    @property
    def waiting_since_s(self) -> float:
        """When the request that has waited longest entered the lane; monotonic seconds."""
        return self._lined_up().waiting_since_s if self._lone is None else self._lone.entered_s

    @property
    def scheduling_key_s(self) -> float:
        """The scheduling key of its most urgent request."""
        return self._lined_up().scheduling_key_s if self._lone is None else self._lone.scheduling_key_s

    @property
    def timeout_s(self) -> float:
        """Seconds that its first request has from arrival to answer."""
        first = self.first if self._lone is None else self._lone
        return first.deadline_s - first.arrival_s

    def __repr__(self) -> str:
        return f"<Lane {self.key}: {self.rows} rows of {len(self)} requests>"
