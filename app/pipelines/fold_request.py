"""The trees of one request in a fold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from app.core.inference import Array

if TYPE_CHECKING:
    from app.batching.request import PendingRequest
    from app.pipelines.fold.reservations import Reserved


class HasRequests(Protocol):
    """A fold."""

    def begin(self, request: FoldRequest, start: Mapping[str, Array], nodes: Mapping[str, Array]) -> None: ...

    def end(self, request: FoldRequest) -> None: ...


class FoldRequest:
    """The trees of one request.

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
        "_fold", "begun_s", "entered_s", "levels", "nodes", "number", "over", "pending", "priority", "roots", "rows",
        "starts",
    )  # fmt: skip
    pending: PendingRequest
    number: int | None

    def __init__(self, fold: HasRequests, reserved: Reserved) -> None:
        self._fold = fold
        self.over = False
        self.starts, self.levels, self.rows, self.roots, self.number = reserved
        self.nodes = len(self.rows)
        self.entered_s = self.begun_s = 0.0
        self.priority = 0

    def begin(
        self,
        start: Mapping[str, Array],
        nodes: Mapping[str, Array],
        pending: PendingRequest,
        entered_s: float,
        priority: int,
    ) -> None:
        """Begin to compute the nodes.

        Args:
            start: by key, the states of the start nodes.
            nodes: by key, the inputs of the inner nodes.
            pending: answered at the end, perhaps before this returns.

        Raises InferenceFailed: a state has another shape than its model says.
        """
        self.pending, self.entered_s, self.priority = pending, entered_s, priority
        self._fold.begin(self, start, nodes)

    def cancel(self) -> None:
        """Stop computing the nodes. A second call has no effect."""
        if not self.over:
            self.over = True
            self._fold.end(self)
