"""What a lane's batches are run through, and what is known of its calls. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from app.batching.cost_model import Costs
from app.batching.shapes.padding import ShapePadding
from app.batching.shapes.ragged import RaggedRows
from app.core.batch_sizes import BatchSizes
from app.core.inference import Array

#: The inner shape of each input.
Shape = tuple[tuple[int, ...], ...]

#: A call of a model: from inputs to outputs, by name.
Run = Callable[[Mapping[str, Array]], dict[str, Array]]

#: Shapes are the callers' choice; the costs of this many are remembered.
_MAX_SHAPES = 256


@dataclass(slots=True, eq=False)
class BatchFunction:
    """What a lane's batches are run through.

    Where `batchable` is false a request runs alone, as it came, and counts as one row. With `padding` requests
    of different shapes share its calls, with `ragged` rows of different lengths do. `ragged_outputs` are those of
    which each row has a length of its own.
    `uncontended_s` is measured: how long a call takes that nothing hinders, by the quicker ones of late (seconds;
    infinity before the first).
    `run` is the model on the first device; where it is on several, `replicas` are all of them.
    `seeds` are seconds by batch size that were measured before the first call, where they do not depend on the
    inner shape.
    """

    run: Run
    sizes: BatchSizes
    batchable: bool = True
    padding: ShapePadding | None = None
    ragged: RaggedRows | None = None
    seeds: Mapping[int, float] | None = None
    ragged_outputs: RaggedRows | None = None
    uncontended_s: float = inf
    requests_under_way: int = 0
    rows_under_way: int = 0
    on_idle: Callable[[], None] | None = None
    replicas: Sequence[Run] = ()
    _costs: dict[Shape, Costs] = field(default_factory=dict)

    @property
    def max_rows(self) -> int:
        return self.sizes.largest if self.batchable else 1

    @property
    def learnt(self) -> Mapping[Shape, Costs]:
        """The costs of calls by their inner shape."""
        return self._costs

    def on(self, replica: int) -> Run:
        """The model on a device, or the first where it has no replica there."""
        return self.replicas[replica] if replica < len(self.replicas) else self.run

    def costs(self, shape: Shape) -> Costs:
        """Of calls with inputs of this inner shape."""
        costs = self._costs.get(shape)
        if costs is None:
            if len(self._costs) >= _MAX_SHAPES:
                self._costs.clear()
            costs = self._costs[shape] = Costs(self.sizes, self.seeds)
        return costs

    def enter(self, rows: int) -> None:
        """A request waits from now on."""
        self.requests_under_way += 1
        self.rows_under_way += rows

    def leave(self, requests: int, rows: int) -> None:
        """So many requests were answered, or are no longer waited for; after the last one `on_idle` is told."""
        self.requests_under_way -= requests
        self.rows_under_way -= rows
        if not self.requests_under_way and self.on_idle is not None:
            self.on_idle()

    def took(self, seconds: float) -> None:
        """A call ended."""
        # On a busy machine most calls are hindered: by the GIL, by other processes.
        self.uncontended_s = min(seconds, self.uncontended_s + (seconds - self.uncontended_s) / 16)
