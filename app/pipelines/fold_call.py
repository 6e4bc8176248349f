"""The call of a fold: nodes of several requests that are computed together."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from app.core.errors import InferenceFailed, OutOfMemory, ServingError
from app.core.reply import Answer

if TYPE_CHECKING:
    from app.batching.request import RequestHandle
    from app.pipelines.fold.agenda import TakenNodes

logger = logging.getLogger(__name__)


class HasCalls(Protocol):
    """A fold, as its calls use it."""

    def computed(self, call: FoldCall, answer: Answer) -> None: ...

    def lost(self, call: FoldCall, error: Exception) -> None: ...


class FoldCall:
    """A call, and the Reply that gets its answer.

    Attributes:
        operation: the number of the operation.
        taken: the nodes of the call.
        handle: None before the call was submitted.
    """

    __slots__ = ("_fold", "_over", "handle", "operation", "taken")

    def __init__(self, fold: HasCalls, operation: int, taken: TakenNodes) -> None:
        self._fold = fold
        self._over = False
        self.operation = operation
        self.taken = taken
        self.handle: RequestHandle | None = None

    @property
    def waiting_nodes(self) -> int:
        """The number of nodes in the queue: all of the call's, or none."""
        return len(self.taken.rows) if self.handle is not None and self.handle.waits else 0

    def done(self) -> bool:
        return self._over

    def give_up(self) -> None:
        """End the call, as no request waits for it: it is not computed unless it already is, and its answer is lost."""
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
    """The error of requests whose nodes could not be joined for a call, or whose answers could not be gathered."""
    if isinstance(raised, ServingError):
        return raised
    if isinstance(raised, MemoryError):
        return OutOfMemory("There was not enough memory for the nodes of a call")
    logger.error("The nodes of a call could not be put together", exc_info=raised)
    return InferenceFailed("The nodes of a call could not be put together")
