"""What a lane's batches are run through, and what was measured of its calls.

Only the event loop writes it; device threads read it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

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

#: How much a call that is slower than usual counts in `uncontended_s`. Chosen: a function that became slow leaves the
#: event loop within a few calls.
_SLOWER_WEIGHT = 1 / 16


@dataclass(slots=True, eq=False)
class BatchFunction:
    """What a lane's batches are run through.

    Attributes:
        run: the model on its first device.
        batchable: false if requests run alone, as they came, each counted as one row.
        padding: if given, requests of different inner shapes share calls.
        ragged, ragged_outputs: if given, rows of different lengths share calls, or are returned by them.
        initial_estimates: seconds by batch size, measured before the first call, if they do not depend on the shape.
        uncontended_s: measured: seconds that a recent call took if nothing slowed it down; infinity before the first.
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
    uncontended_s: float = inf
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

    def record_latency(self, seconds: float) -> None:
        """Takes a call's time into account: a quicker one at once, a slower one little by little.

        On a busy machine most calls are slowed down: by the GIL, by other processes.
        """
        self.uncontended_s = min(seconds, self.uncontended_s + (seconds - self.uncontended_s) * _SLOWER_WEIGHT)

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
