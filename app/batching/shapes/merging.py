"""Who else shares a batch that is not full: requests of neighbouring shapes, where that saves time. Pure.

A call costs as much as `call_cells` cells (elements of its inputs) beside what its own cells cost; that was measured
at warm-up. So a neighbour saves a call and pays with padding. Rows that would be nobody's, to reach an allowed batch
size, cost nothing: a neighbour that is no longer than the batch fills them for free.

Within each lane it is first come, first served, as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from app.batching.queue import Lane
from app.batching.shapes.padding import Shapes
from app.core.batch_sizes import BatchSizes

#: When so many neighbours in a row, nearest first, are not worth it, those further away are not looked at.
_PATIENCE = 4


def company(lane: Lane, rows: int, most_rows: int, lanes: Iterable[Lane]) -> Iterator[tuple[Lane, int]]:
    """Lanes to take from, nearest first, and how many rows from the front of each.

    Args:
        rows: what was taken from `lane`.
        most_rows: what the batch may have.
    """
    padding, shape = lane.function.padding, lane.key.shape
    if padding is None or not padding.enabled or rows >= most_rows:
        return
    costs = _Costs(lane.function.sizes, padding.call_cells)
    cells = padding.cells(shape)
    neighbours = [
        (padding.cells(each.key.shape), each)
        for each in lanes
        if each.key.padded and each is not lane and each.key[:4] == lane.key[:4]
    ]
    neighbours.sort(key=lambda each: max(each[0] / cells, cells / each[0]))
    rejected = 0
    for their_cells, neighbour in neighbours:
        common = _common(shape, neighbour.key.shape)
        common_cells = padding.cells(common)
        share = costs.best_share(rows, cells, neighbour, their_cells, common_cells, room=most_rows - rows)
        if share:
            yield neighbour, share
            rows, shape, cells, rejected = rows + share, common, common_cells, 0
        else:
            rejected += 1
        if rows >= most_rows or rejected == _PATIENCE:
            return


class _Costs:
    """What calls cost, in cells."""

    __slots__ = ("_call", "_sizes")

    def __init__(self, sizes: BatchSizes, call_cells: float) -> None:
        self._sizes = sizes
        self._call = call_cells

    def best_share(
        self, rows: int, cells: int, neighbour: Lane, their_cells: int, common_cells: int, *, room: int
    ) -> int:
        """Rows of the neighbour whose company saves the most: all that fit, or as many as are free; 0 if none does."""
        waiting = neighbour.rows
        apart = self._of(rows, cells) + self._of(waiting, their_cells)
        best, best_share = apart, 0
        for most in (room, min(room, self._sizes.padded(rows) - rows)):
            share = _rows_that_fit(neighbour, most)
            cost = self._of(rows + share, common_cells) + self._of(waiting - share, their_cells)
            if share and cost < best:
                best, best_share = cost, share
        return best_share

    def _of(self, rows: int, cells: int) -> float:
        largest = self._sizes.largest
        if rows <= largest:
            return self._call + self._sizes.padded(rows) * cells if rows else 0.0
        return rows // largest * (self._call + largest * cells) + self._of(rows % largest, cells)


def _rows_that_fit(lane: Lane, room: int) -> int:
    """Rows of the requests at the front that fit together, none where the first does not."""
    rows = 0
    for request in lane.waiting:
        if request.reply.done():
            continue
        weight = request.rows or 1
        if rows + weight > room:
            break
        rows += weight
    return rows


def _common(first: Shapes, second: Shapes) -> Shapes:
    """The least shape that holds both."""
    if first == second:
        return first
    return tuple([tuple(map(max, one, other)) for one, other in zip(first, second, strict=True)])
