"""What makes a version faster that is ready: larger batches, execution variants, shared calls, compiled buckets.

Rules
1. A version is called only in ways that were tried: what a step found is adopted when the step is over, in one turn of
   the event loop. A step that fails or has no time left changes nothing.
2. All steps share what the load left of its time budget. Between two calls of the model each step asks it, so that
   requests go first, and the work ends soon after the version is unloaded or the server drains.
3. The memory of the model is not freed while a step runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Protocol

from app.batching.shapes.buckets import ShapeBuckets
from app.config.settings import Settings
from app.core.batch_sizes import BatchSizes
from app.core.errors import ServingError
from app.core.events import Listener, ModelImproving, RowsProbed, ShapesProbed, VariantsChosen
from app.core.inference import ModelSignature
from app.core.time_budget import NoTimeLeft, TimeBudget
from app.loading.bucket_compilation import compile_buckets
from app.loading.budgeted_model import BudgetedModel
from app.loading.padding_probe import PaddingOptions, ProbedPadding, probe_padding
from app.loading.row_independence import FoundRows, RowIndependence
from app.loading.settings_of_model import of_model
from app.loading.warm_up import measure_calls, tune, warm_up
from app.model import Model
from app.placement import RequestPlacement
from app.runtime import LoadedModel, ProgressReport, VariantChoice

logger = logging.getLogger(__name__)

#: The share of the time that the probe of rows at the largest size may take. Chosen.
_ROWS_SHARE = 1 / 3

#: The share of the time that the search for variants may take: the probe after it lets requests share calls. Chosen.
_SEARCH_SHARE = 2 / 3


class Place(Protocol):
    """Makes a placement of the version by what is known of it."""

    def __call__(
        self,
        *,
        signatures: Mapping[str, ModelSignature],
        sizes: BatchSizes,
        paddings: Mapping[str, ProbedPadding],
        costs: Mapping[str, Mapping[int, float]],
    ) -> RequestPlacement: ...


class Improvement:
    """The steps for one version that is ready.

    Args:
        loaded, calls: the model, and the same within the time budget of its load.
        sizes: the batch sizes that it answers now; `model.sizes` are those that it should answer.
        rows: what is known of its rows at these sizes.
        on_loop: calls a function on the event loop, from any thread.
    """

    def __init__(
        self,
        model: Model,
        loaded: LoadedModel,
        calls: BudgetedModel,
        *,
        sizes: BatchSizes,
        rows: RowIndependence,
        settings: Settings,
        place: Place,
        tell: Listener,
        on_loop: Callable[[Callable[[], None]], object],
        report: ProgressReport,
    ) -> None:
        self.model = model
        self._loaded = loaded
        self._calls = calls
        self._settings = settings
        self._place = place
        self._tell = tell
        self._on_loop = on_loop
        self._report = report
        self._working = Lock()
        self._released = False
        self._seconds, self._left_s = calls.budget.seconds, calls.budget.left_s

        # What was found so far
        self._signatures = model.signatures
        self._sizes = sizes
        self._rows = rows
        self._told_rows: dict[str, FoundRows] = {}
        self._costs: Mapping[str, Mapping[int, float]] = {}
        self._paddings: Mapping[str, ProbedPadding] = {}

    def announce(self) -> None:
        """Tells that there is something to do."""
        self._tell_step("waiting for an idle moment")

    def run(self, gate: Callable[[], bool] | None = None) -> None:
        """Take all steps, blocking; each call of the model begins when `gate` lets it. Never fails."""
        with self._working:
            if not self._released:
                budget = TimeBudget(self._seconds, gate=gate, left_s=self._left_s)
                self._calls.use(budget)
                try:
                    self._improve(budget)
                except NoTimeLeft as reason:
                    logger.info("%s stays as it is: %s", self, reason)
                except Exception:
                    logger.exception("%s stays as it is: making it faster failed", self)
        self._tell_step("")

    def release(self) -> None:
        """Frees the model's memory when no step runs any more, blocking; no step runs after that."""
        with self._working:
            self._released = True
            self._loaded.close()

    def _improve(self, budget: TimeBudget) -> None:
        self._tell_step("larger batches")
        proven = self._sizes
        self._grow()
        self._signatures = self._rows.by_probe(self._calls, self._signatures, self._sizes, budget.part(_ROWS_SHARE))
        if budget.cancelled:  # the version ends, and nothing was found out about it
            return
        if not self._rows.in_time:
            self._sizes = proven
            logger.warning("%s gets batches of at most %d rows: no time to compare more", self, proven.largest)
        self.tell_rows()
        self._adopt()

        self._tell_step("execution variants")
        choices = tune(self._loaded, self._sizes.allowed, self._report, budget.part(_SEARCH_SHARE))
        self._costs = measure_calls(self._calls, self._signatures, self._sizes.allowed, self._calls.work_clock)

        self._tell_step("shared calls of different shapes")
        self._probe_padding(budget)

        if not budget.cancelled:
            self._adopt()
            self._tell_found(choices)
            left_out = "" if budget.allows() else "; what did not fit into load_budget_s is left out"
            logger.info("%s is tuned, for batches of up to %d rows%s", self, self._sizes.largest, left_out)

    def _grow(self) -> None:
        """Calls the larger batch sizes, ascending, up to one that fails or does not fit into the time."""
        batchable = {name: each for name, each in self._signatures.items() if each.batchable}
        for rows in self.model.sizes.allowed:
            if rows > self._sizes.largest and batchable:
                try:
                    warm_up(self._calls, [rows], self._report, batchable, larger=True)
                except (NoTimeLeft, ServingError) as reason:
                    if not self._calls.budget.cancelled:
                        logger.warning("%s gets batches of at most %d rows: %s", self, self._sizes.largest, reason)
                    break
            self._sizes = BatchSizes(tuple(sorted({*self._sizes.allowed, rows})))

    def _probe_padding(self, budget: TimeBudget) -> None:
        """Finds which requests of different shapes may share calls, and compiles what they are padded to."""
        settings, signatures = self._settings, self._signatures
        buckets = ShapeBuckets(tuple(settings.shape_buckets))
        options = PaddingOptions(settings.pad_shapes, buckets, of_model(settings.pad_values, self.model.name))
        self._paddings = probe_padding(self._calls, self._sizes, options, signatures=signatures)
        if settings.pad_shapes == "auto":
            compile_buckets(self._loaded, signatures, self._paddings, self._sizes.allowed, self._report, budget=budget)

    def _adopt(self) -> None:
        placement = self._place(
            signatures=self._signatures,
            sizes=self._sizes,
            paddings=self._paddings,
            costs=self._costs,
        )
        self._on_loop(partial(self.model.adopt, placement))

    # --- what is told ---

    def tell_rows(self) -> None:
        """Tells what was found of the rows since it was told last."""
        for signature, found in self._rows.found.items():
            if found != self._told_rows.get(signature):
                self._told_rows[signature] = found
                alone, unproven = bool(found.alone), bool(found.unproven)
                self._tell(RowsProbed(self.model.name, self.model.version, signature, alone, unproven, str(found)))

    def _tell_step(self, step: str) -> None:
        self._tell(ModelImproving(self.model.name, self.model.version, step))

    def _tell_found(self, choices: Sequence[VariantChoice]) -> None:
        name, version = self.model.name, self.model.version
        for signature in sorted({choice.signature for choice in choices}):
            variants = {
                each.batch_size: (each.variant, each.speed_up) for each in choices if each.signature == signature
            }
            self._tell(VariantsChosen(name, version, signature, variants))
        for signature, probed in self._paddings.items():
            self._tell(ShapesProbed(name, version, signature, probed.padding is not None, str(probed)))

    def __str__(self) -> str:
        return f"Model {self.model.name} version {self.model.version}"
