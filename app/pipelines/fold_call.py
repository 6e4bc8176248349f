"""One call of a fold: nodes of several requests that are computed together."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from app.core.errors import InferenceFailed, OutOfMemory, ServingError
from app.core.reply import Answer

if TYPE_CHECKING:
    from app.batching.request import RequestHandle
    from app.pipelines.fold.agenda import Taken

logger = logging.getLogger(__name__)


class HasCalls(Protocol):
    """A fold."""

    def computed(self, call: FoldCall, answer: Answer) -> None: ...

    def lost(self, call: FoldCall, error: Exception) -> None: ...


class FoldCall:
    """The Reply of a call.

    Attributes:
        operation: the number of its model.
        taken: its nodes.
        handle: None before it was submitted.
    """

    __slots__ = ("_fold", "_over", "handle", "operation", "taken")

    def __init__(self, fold: HasCalls, operation: int, taken: Taken) -> None:
        self._fold = fold
        self._over = False
        self.operation = operation
        self.taken = taken
        self.handle: RequestHandle | None = None

    @property
    def waiting_nodes(self) -> int:
        """How many of its nodes are in the queue."""
        return len(self.taken.rows) if self.handle is not None and self.handle.waits else 0

    def done(self) -> bool:
        return self._over

    def give_up(self) -> None:
        """Nobody waits for it any more: it is not computed if it is not being computed, and its answer is dropped."""
        self._over = True
        if self.handle is not None:
            self.handle.cancel()

    def set_result(self, answer: Answer, /) -> None:
        self._over = True
        self._fold.computed(self, answer)

    def set_exception(self, error: Exception, /) -> None:
        self._over = True
        self._fold.lost(self, error)


def call_error(raised: Exception) -> ServingError:
    """The error of the requests whose nodes could not be put together for a call, or taken out of its answer."""
    if isinstance(raised, ServingError):
        return raised
    if isinstance(raised, MemoryError):
        return OutOfMemory("There was not enough memory for the nodes of a call")
    logger.error("The nodes of a call could not be put together", exc_info=raised)
    return InferenceFailed("The nodes of a call could not be put together")
