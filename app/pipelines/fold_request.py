"""One request's trees in a fold."""

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
        nodes, starts, levels: their number, that of start nodes, and of the calls that it takes at least.
        rows: [nodes] of the arena, until they are free again.
        roots: the rows of nodes without a parent.
        number: its number in the agenda, while its nodes are there.
        over: whether it was answered, has failed or was cancelled.
        pending, priority: its reply, caller and offset of priority, and the priority itself (priority.py).
        entered_s: where its first calls stand in the queue, monotonic seconds.
        begun_s: for the flow, which notes when it began.
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
        """Its nodes are computed from now on.

        Args:
            start: by key, the states of its start nodes.
            nodes: by key, what its nodes have of their own.
            pending: is answered, perhaps before this returns.

        Raises InferenceFailed: a state has another shape than its model says.
        """
        self.pending, self.entered_s, self.priority = pending, entered_s, priority
        self._fold.begin(self, start, nodes)

    def cancel(self) -> None:
        """Nothing more is computed for it. A second call has no effect."""
        if not self.over:
            self.over = True
            self._fold.end(self)
