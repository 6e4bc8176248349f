"""What a lane's batches are run through, and what was measured of its calls.

Only the event loop writes it; device threads read it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from app.batching.cost_model import Costs
from app.batching.shapes.padding import ShapePadding
from app.batching.shapes.ragged import RaggedRows
from app.core.batch_sizes import BatchSizes
from app.core.bounded_cache import BoundedCache
from app.core.inference import Array, InnerShapes

logger = logging.getLogger(__name__)

#: A call of a model: from inputs to outputs, by name.
Run = Callable[[Mapping[str, Array]], dict[str, Array]]

#: Callers choose the shapes; the costs of this many are kept. Chosen.
_MAX_SHAPES = 256


@dataclass(slots=True, eq=False)
class BatchFunction:
    """What a lane's batches are run through.

    Attributes:
        run: the model on its first device.
        batchable: false if requests run alone, as they came, each counted as one row.
        padding: if given, requests of different inner shapes share calls.
        ragged, ragged_outputs: if given, rows of different lengths share calls, or are returned by them.
        initial_estimates: seconds by batch size, measured before the first call, if they do not depend on the shape.
        last_costs: those of the lane that was called last; None before the first call.
        requests_under_way: how many requests wait or are being computed.
        on_idle: called after the last of these was answered.
        replicas: the model on each of its devices, if there are several.
        learnt: the costs of calls by their inner shape.
    """

    run: Run
    sizes: BatchSizes
    batchable: bool = True
    padding: ShapePadding | None = None
    ragged: RaggedRows | None = None
    initial_estimates: Mapping[int, float] | None = None
    ragged_outputs: RaggedRows | None = None
    last_costs: Costs | None = None
    requests_under_way: int = 0
    on_idle: Callable[[], None] | None = None
    replicas: Sequence[Run] = ()
    learnt: BoundedCache[InnerShapes, Costs] = field(default_factory=lambda: BoundedCache(_MAX_SHAPES))

    @property
    def max_rows(self) -> int:
        return self.sizes.largest if self.batchable else 1

    def on(self, replica: int) -> Run:
        """The model on a device, or on the first one if it has no replica there."""
        return self.replicas[replica] if replica < len(self.replicas) else self.run

    def costs(self, shape: InnerShapes) -> Costs:
        costs = self.learnt.get(shape)
        return self.learnt.keep(shape, Costs(self.sizes, self.initial_estimates)) if costs is None else costs

    def leave(self, requests: int = 1) -> None:
        """Counts requests that were answered or left; after the last one `on_idle` is called."""
        self.requests_under_way -= requests
        if not self.requests_under_way and self.on_idle is not None:
            self.on_idle()

    def stop_batching(self, mismatch: str) -> None:
        """From now on each request runs alone, because of what a call returned."""
        if not self.batchable:
            return
        self.batchable = False
        if self.padding is not None:
            self.padding.enabled = False
            logger.warning("Padding did not go as it did at warm-up, only equal shapes share a call: %s", mismatch)
        else:
            logger.warning(
                "The outputs do not follow the rows of the inputs: requests run one by one from now on: %s", mismatch
            )
