"""The admission of requests with trees: requests that arrive in one turn of the event loop are checked together.

fold.c checks the trees of all of them in one pass. Until then none of their steps is computed or queued; a request
whose caller has left by then is left out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from app.core.errors import InferenceFailed, ServingError
from app.pipelines.fold.forests import ForestInputs

if TYPE_CHECKING:
    from app.pipelines.fold_request import FoldRequest
    from app.pipelines.folding import Fold
    from app.pipelines.plan import StepPlan

logger = logging.getLogger(__name__)


class Entering(Protocol):
    """A request with trees; see Flow."""

    def trees(self, step: StepPlan) -> tuple[ForestInputs, float] | None: ...

    def reserved(self, step: StepPlan, fold: FoldRequest | ServingError) -> None: ...

    def begin_later(self) -> None: ...


class FoldAdmission:
    """The admission of one binding. Made on the event loop.

    Args:
        folds: by step.
    """

    def __init__(self, folds: Mapping[StepPlan, Fold]) -> None:
        self._folds = folds
        self._loop = asyncio.get_running_loop()
        self._flows: list[Entering] = []

    def add(self, flow: Entering) -> None:
        """Begin a flow in the next turn of the loop; its reply gets the error of a rejection."""
        self._flows.append(flow)
        if len(self._flows) == 1:
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        flows, self._flows = self._flows, []
        for step, fold in self._folds.items():
            asking = [(flow, *trees) for flow in flows if (trees := flow.trees(step)) is not None]
            if not asking:
                continue
            _, asked, arrivals_s = zip(*asking, strict=True)
            for (flow, _, _), given in zip(asking, _reserved(step, fold, asked, arrivals_s), strict=True):
                flow.reserved(step, given)
        for flow in flows:
            flow.begin_later()


def _reserved(
    step: StepPlan, fold: Fold, asked: Sequence[ForestInputs], arrivals_s: Sequence[float]
) -> Sequence[FoldRequest | ServingError]:
    try:
        return fold.reserve(asked, arrivals_s)
    except Exception:
        logger.exception("The trees of step %r could not be checked", step.name)
        return [InferenceFailed("The trees of the request could not be checked") for _ in asked]
