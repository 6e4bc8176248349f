"""Bucket merging: a batch that is not full takes requests of other buckets, if that saves time. No I/O, no clock.

A call costs as much as its own cells (elements of its inputs) and `call_cells` more; the padding probe measured these.
So merging saves a call and costs padding. Padding rows, which are added to reach a batch size, are computed anyway:
requests that are no longer than the batch fill them for free.

Within each lane it is first come, first served.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from app.batching.queue import RequestQueue
from app.batching.shapes.padding import common_shape
from app.batching.waiting.lane import Lane
from app.core.batch_sizes import BatchSizes

#: The search ends after this many buckets in a row that save no time, nearest first. Chosen.
_MAX_REJECTED = 4


def merge_buckets(lane: Lane, rows: int, most_rows: int, queue: RequestQueue) -> Iterator[tuple[Lane, int]]:
    """The lanes to take requests from, nearest bucket first, and the number of rows to take from the front of each.

    Args:
        rows: the rows that were taken from `lane`.
        most_rows: the rows that the batch may have.
    """
    padding, shape = lane.function.padding, lane.key.shape
    if padding is None or not (lane.key.padded and padding.enabled) or rows >= most_rows:
        return
    costs = _MergingCosts(lane.function.sizes, padding.call_cells)
    cells = padding.cells(shape)
    rejected = 0
    for their_cells, neighbour in queue.nearest(lane):
        common = common_shape((shape, neighbour.key.shape))
        common_cells = padding.cells(common)
        their_rows = costs.best_rows(rows, cells, neighbour, their_cells, common_cells, room=most_rows - rows)
        if their_rows:
            yield neighbour, their_rows
            rows, shape, cells, rejected = rows + their_rows, common, common_cells, 0
        else:
            rejected += 1
        if rows >= most_rows or rejected == _MAX_REJECTED:
            return


@dataclass(frozen=True, slots=True)
class _MergingCosts:
    """The costs of calls, in cells."""

    sizes: BatchSizes
    call_cells: float

    def best_rows(
        self, rows: int, cells: int, neighbour: Lane, their_cells: int, common_cells: int, *, room: int
    ) -> int:
        """The rows of `neighbour` that save the most: all that fit, as many as fill padding rows, or 0."""
        waiting = neighbour.rows
        apart = self._of(rows, cells) + self._of(waiting, their_cells)
        best, best_rows = apart, 0
        for most in (room, min(room, self.sizes.padded(rows) - rows)):
            taken = _rows_that_fit(neighbour, most)
            cost = self._of(rows + taken, common_cells) + self._of(waiting - taken, their_cells)
            if taken and cost < best:
                best, best_rows = cost, taken
        return best_rows

    def _of(self, rows: int, cells: int) -> float:
        largest = self.sizes.largest
        if rows <= largest:
            return self.call_cells + self.sizes.padded(rows) * cells if rows else 0.0
        return rows // largest * (self.call_cells + largest * cells) + self._of(rows % largest, cells)


def _rows_that_fit(lane: Lane, room: int) -> int:
    """The rows of the requests at the front that fit together; 0 if the first does not."""
    rows = 0
    for request in lane:
        if request.reply.done():
            continue
        request_rows = request.rows or 1
        if rows + request_rows > room:
            break
        rows += request_rows
    return rows
