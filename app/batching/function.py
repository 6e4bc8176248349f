"""A batch function: the call of a model for one signature and set of outputs, with its measured costs.

Only the event loop writes it; device threads read it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple, Protocol

from app.batching.costs.cost_model import Costs
from app.batching.proof.row_limit import RowLimit
from app.batching.proof.traffic_trial import TrafficTrial
from app.batching.request import PendingRequest
from app.batching.shapes.padding import ShapePadding
from app.batching.shapes.ragged import RaggedRows
from app.core.agreement import TOLERANCES
from app.core.batch_sizes import BatchSizes
from app.core.bounded_cache import BoundedCache
from app.core.inference import Array, InnerShapes
from app.core.reply import Outcome

logger = logging.getLogger(__name__)

#: A call of a model: from inputs to outputs, by name.
Run = Callable[[Mapping[str, Array]], dict[str, Array]]

#: Callers choose the shapes; the costs of this many are kept. Chosen.
_MAX_SHAPES = 256


class PlainWay(NamedTuple):
    """The plain way of a signature: shadow checks compute requests by it as the model does without Ferry.

    stop: from now on 'variant', 'padding' or 'sharing' is not used for the signature.
    tolerances: how far its answers may lie apart, by type (app/core/agreement.py).
    """

    run: Run
    stop: Callable[[str], None]
    tolerances: Mapping[str, float] = TOLERANCES


class Compared(NamedTuple):
    """A call whose answers were compared before they are given (dispatch/first_answers.py).

    requests: the number of its requests. kinds: the kinds of their values. differing: 'variant', 'padding' or 'sharing'
    if that changed an answer; else empty.
    """

    requests: int
    kinds: Collection[Hashable]
    differing: str = ""


class Comparing(Protocol):
    """FirstAnswers (dispatch/first_answers.py, which imports this file): it compares answers before they are given."""

    def compare(
        self, function: BatchFunction, requests: Sequence[PendingRequest], outcomes: Sequence[Outcome]
    ) -> Compared | None: ...

    def record(self, compared: Compared) -> None: ...


@dataclass(slots=True, eq=False)
class BatchFunction:
    """The function of a model that a lane's batches are run with.

    Attributes:
        run: the model on its first device.
        batchable: false if requests run alone, as they came, each counted as one row.
        divisible: false if the answer to a part of a request is no part of the answer to it, as calls showed.
        steady: false if no earlier call tells how long the next one takes: it has loops, and values decide, or it reads
            files, and the storage does.
        devices: the names of the devices that each call needs together; empty if a call needs one, no matter which.
        padding: if given, requests of different inner shapes share calls.
        ragged, ragged_outputs: if given, rows of different lengths share calls, or are returned by them.
        initial_estimates: seconds by batch size, measured before the first call, if they do not depend on the shape.
        last_costs: the costs of the lane that was called last; None before the first call.
        requests_under_way: the number of requests that wait or are being computed.
        on_idle: called after the last of these requests was answered.
        replicas: the model on each of its devices, if there are several.
        plain: the way of shadow checks; None if there are none.
        trial: the trial of rows that its requests are part of; None if nothing is to be proven by them.
        first: compares its first answers; None if its rows need no comparison. One for all functions of a signature.
        guilty: 'variant', 'padding' and 'sharing', each if a check found that it changes answers, and stopped it.
        learnt: the costs of calls by their inner shape, for the shapes that were asked for last.
        row_limit: the most rows that the model takes, as far as is known; one for all functions of a signature.
        on_limit: called with the most rows of a call, if the model rejects more for their number alone.
    """

    run: Run
    sizes: BatchSizes
    batchable: bool = True
    divisible: bool = True
    padding: ShapePadding | None = None
    ragged: RaggedRows | None = None
    initial_estimates: Mapping[int, float] | None = None
    ragged_outputs: RaggedRows | None = None
    last_costs: Costs | None = None
    requests_under_way: int = 0
    on_idle: Callable[[], None] | None = None
    replicas: Sequence[Run] = ()
    plain: PlainWay | None = None
    trial: TrafficTrial | None = None
    first: Comparing | None = None
    steady: bool = True
    devices: Sequence[str] = ()
    guilty: set[str] = field(default_factory=set)
    learnt: BoundedCache[InnerShapes, Costs] = field(default_factory=lambda: BoundedCache(_MAX_SHAPES))
    row_limit: RowLimit = field(default_factory=RowLimit)
    on_limit: Callable[[int], None] | None = None
    _by_magnitude: dict[int, tuple[int, Costs]] = field(default_factory=dict)

    @property
    def max_rows(self) -> int:
        return self.sizes.largest if self.batchable else 1

    @property
    def coalescable(self) -> bool:
        """Whether requests may be submitted as one: their rows are consecutive in each input and output."""
        return self.batchable and self.ragged is None and self.ragged_outputs is None and self.first is None

    def on(self, replica: int) -> Run:
        """The model's replica of this number, or the first one if there is no such replica."""
        return self.replicas[replica] if replica < len(self.replicas) else self.run

    def costs(self, shape: InnerShapes) -> Costs:
        """The costs of calls of this inner shape; a new or forgotten shape gets a guess from one of about its size."""
        costs = self.learnt.pop(shape, None)
        if costs is None:
            return self.learnt.keep(shape, self._new_costs(shape))
        self.learnt[shape] = costs  # as the newest: the shape that was not used for longest is forgotten
        return costs

    def _new_costs(self, shape: InnerShapes) -> Costs:
        guess: Mapping[int, float] = {}
        elements = _elements(shape)
        magnitude = elements.bit_length()
        for near in (magnitude, magnitude - 1, magnitude + 1):  # the costs are not linear over all sizes
            if near in self._by_magnitude:
                their_elements, theirs = self._by_magnitude[near]
                guess = theirs.scaled(elements / their_elements)
                break
        return Costs(self.sizes, self.initial_estimates, guess)

    def record_costs(self, shape: InnerShapes, costs: Costs) -> None:
        """Notes the costs that were timed last: shapes of about the same size get a guess from them."""
        if costs is self.last_costs:
            return
        self.last_costs = costs
        elements = _elements(shape)
        self._by_magnitude[elements.bit_length()] = elements, costs

    def leave(self, requests: int = 1) -> None:
        """Stops counting requests that were answered or left; after the last one `on_idle` is called."""
        self.requests_under_way -= requests
        if not self.requests_under_way and self.on_idle is not None:
            self.on_idle()

    def stop_batching(self, mismatch: str, *, rows_follow: bool = False) -> None:
        """Makes each request run alone from now on, because of the outputs of a call.

        Args:
            mismatch: why the outputs cannot be given to requests by row.
            rows_follow: the call returned a row for each row all the same.
        """
        self.divisible &= rows_follow
        if not self.batchable:
            return
        self.batchable = False
        if self.padding is not None:
            self.padding.enabled = False
            logger.warning("Padding went otherwise than when it was tried, only equal shapes share calls: %s", mismatch)
        else:
            logger.warning(
                "The outputs do not follow the rows of the inputs: requests run one by one from now on: %s", mismatch
            )


def elements_of(function: BatchFunction, requests: Sequence[PendingRequest]) -> int:
    """The work of a call beside inner shape and rows: elements of padded, ragged and lone requests, bytes of strings.

    0 where shape and rows tell everything.
    """
    sent = [request.inputs for request in requests]
    elements = 0
    if not function.batchable:
        elements = max([sum([array.size for array in inputs.values()]) for inputs in sent])
    elif function.ragged is not None:
        elements = sum([array.size for inputs in sent for array in inputs.values()])
    elif function.padding is not None:
        rows = function.sizes.padded(sum([request.rows for request in requests]))
        elements = rows * function.padding.cells(function.padding.call_shape(sent, rows))
    strings = [name for name, array in sent[0].items() if array.dtype.hasobject]
    if not strings:
        return elements
    return elements + sum([len(text) for name in strings for inputs in sent for text in inputs[name].flat])


def _elements(shape: InnerShapes) -> int:
    """The elements of a row, at least 1."""
    return sum([prod(inner) for inner in shape]) or 1
