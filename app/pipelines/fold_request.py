"""The trees of one request in a fold."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.batching.request import PendingRequest
    from app.pipelines.fold.forests import Reserved


class FoldRequest:
    """The trees of one request.

    Args:
        end: takes them out of the fold.

    Attributes:
        nodes, starts, levels: the numbers of all nodes, of start nodes, and of levels, the least number of calls.
        rows: [nodes] the rows in the arena, until they are free again.
        roots: the rows of nodes without a parent.
        number: the request's number in the agenda, while its nodes are there.
        over: whether the request was answered, has failed or was cancelled.
        pending: the reply, the caller and the offset of the priority.
        priority: the priority itself (priority.py).
        entered_s: the place of the first calls in the queue, monotonic seconds.
        begun_s: when the fold began, noted by the flow.
    """

    __slots__ = (
        "_end", "begun_s", "entered_s", "levels", "nodes", "number", "over", "pending", "priority", "roots", "rows",
        "starts",
    )  # fmt: skip
    pending: PendingRequest
    number: int | None

    def __init__(self, end: Callable[[FoldRequest], None], reserved: Reserved) -> None:
        self._end = end
        self.over = False
        self.starts, self.levels, self.rows, self.roots, self.number = reserved
        self.nodes = len(self.rows)
        self.entered_s = self.begun_s = 0.0
        self.priority = 0

    def cancel(self) -> None:
        """Stop computing the nodes. A second call has no effect."""
        if not self.over:
            self.over = True
            self._end(self)
