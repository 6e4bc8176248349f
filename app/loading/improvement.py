"""The steps that make a ready version faster: larger batches, execution variants, shared calls, compiled buckets.

Rules
1. A version is called only in ways that were tried: the findings of a step are adopted when the step is over, in one
   turn of the event loop. A step that fails or has no time left changes nothing.
2. All steps share the time that the load left of its budget. Between two calls of the model each step asks the budget,
   so that requests go first, and the work ends soon after the version is unloaded or the server drains. No call begins
   that is expected to take too much memory.
3. A step that does not fit into the budget is done in a later round, when no other version waits. Each round has twice
   the time of the one before, and repeats steps that cannot go on in the middle; no single call is expected to take
   longer than the first budget.
4. The memory of the model is not freed while a step runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import NamedTuple

from app.batching.shapes.buckets import ShapeBuckets
from app.config.settings import Settings
from app.core.batch_sizes import BatchSizes
from app.core.errors import ServingError
from app.core.events import Listener, ModelImproving, ShapesProbed, VariantsChosen
from app.core.inference import ModelSignature
from app.core.time_budget import OverBudget, TimeBudget, TooMuchMemory
from app.core.values.sample_inputs import zero_inputs
from app.loading.bucket_compilation import compile_buckets
from app.loading.budgeted_model import BudgetedModel
from app.loading.memory_trial import MemoryTrial, TrialFailed, measure_in_child
from app.loading.padding_probe import PaddingOptions, ProbedPadding, probe_padding
from app.loading.rows.row_independence import RowIndependence
from app.loading.settings_of_model import of_model
from app.loading.warm_up import measure_calls, tune, warm_up
from app.model import Model
from app.placement import RequestPlacement
from app.runtime import LoadedModel, ProgressReport, VariantChoice

logger = logging.getLogger(__name__)

#: Rounds, the first included. Chosen: all together take 15 times the budget, and few models have anything to do then.
_MOST_ROUNDS = 4

#: The share of the time that the probe of rows at the largest size may take. Chosen.
_ROWS_SHARE = 1 / 3

#: The share of the time that a child process may take to measure memory. Chosen.
_TRIAL_SHARE = 1 / 3

#: The share of the time that the search for variants may take: the probe after it lets requests share calls. Chosen.
_SEARCH_SHARE = 2 / 3


class _Adopted(NamedTuple):
    """The findings of the steps by which requests are placed."""

    sizes: BatchSizes
    paddings: Mapping[str, ProbedPadding]
    costs: Mapping[str, Mapping[int, float]]


class Improvement:
    """The steps for one version that is ready.

    Args:
        loaded, calls: the model, and the same within the budgets of its load.
        sizes: the batch sizes that it answers now; `model.sizes` are the sizes that it should answer.
        rows: the proofs of its rows at these sizes.
        place: makes a placement of the version by its signatures, sizes, paddings and costs, given by name.
        on_loop: calls a function on the event loop, from any thread.
        memory_trial: makes the order for a child process that measures the memory of calls of these sizes, each of at
            most this many bytes.
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
        place: Callable[..., RequestPlacement],
        tell: Listener,
        on_loop: Callable[[Callable[[], None]], object],
        memory_trial: Callable[[Sequence[int], float], MemoryTrial],
    ) -> None:
        self.model = model
        self._loaded = loaded
        self._calls = calls
        self._settings = settings
        self._place = place
        self._tell = tell
        self._on_loop = on_loop
        self._memory_trial = memory_trial
        self._report: ProgressReport = _report_nothing
        self._working = Lock()
        self._released = False
        self._seconds, self._left_s = calls.budget.seconds, calls.budget.left_s
        self._round = 1
        self._finished: set[str] = set()  # the steps that had all the time they need
        self._probed: BatchSizes | None = None  # the sizes for which the probe of rows had all the time it needs
        self._measured = False  # whether a child process measured the memory of calls

        # Findings so far
        self._seen = model.signatures
        self._sizes = sizes
        self._largest_possible = model.sizes.largest
        self._rows = rows
        self._costs: Mapping[str, Mapping[int, float]] = {}
        self._paddings: Mapping[str, ProbedPadding] = {}
        self._disproved: dict[str, ProbedPadding] = {}  # paddings that changed answers of requests
        self._choices: Sequence[VariantChoice] = ()

        # Findings that requests use
        self._adopted = _Adopted(sizes, self._paddings, self._costs)
        rows.changed = partial(on_loop, self._rows_changed)

    def announce(self) -> None:
        """Tells listeners that there is something to do."""
        self._tell_step("waiting for an idle moment")

    def run(self, gate: Callable[[], bool] | None = None, is_wanted: Callable[[], bool] = lambda: True) -> bool:
        """Take all steps, blocking; each call of the model begins when `gate` lets it. Never fails.

        Returns whether it should be called once more, when nothing else is to be done.

        Args:
            is_wanted: whether the gate would let a call begin at some time.
        """
        unfinished = False
        with self._working:
            if not self._released:
                unfinished = self._one_round(gate, is_wanted)
        self._tell_step("waiting for time to do the rest" if unfinished else "")
        return unfinished

    @property
    def is_later_round(self) -> bool:
        """Whether the first round is over. May be read from any thread."""
        return self._round > 1

    def run_in_advance(self, report: ProgressReport) -> bool:
        """Does what `run` does before the version is served: its model belongs to the calling thread."""
        later = self._on_loop, self._report
        self._on_loop, self._report = _call, report
        try:
            return self.run()
        finally:
            self._on_loop, self._report = later

    def _one_round(self, gate: Callable[[], bool] | None, is_wanted: Callable[[], bool]) -> bool:
        """Takes all steps once. Returns whether there should be another round."""
        longest_s = self._seconds / 2 ** (self._round - 1)
        budget = TimeBudget(self._seconds, gate=gate, left_s=self._left_s, longest_s=longest_s)
        self._calls.use(budget)
        try:
            self._improve(budget, is_wanted)
        except OverBudget as reason:
            logger.info("%s stays as it is: %s", self, reason)
        except Exception:
            logger.exception("%s stays as it is: making it faster failed", self)
            return False
        if budget.cancelled:  # a newer version goes first, or this one ends
            return not self.model.closing
        self._round += 1
        self._seconds = self._left_s = 2 * self._seconds
        return budget.short and self._seconds > 0 and self._round <= _MOST_ROUNDS

    def release(self) -> None:
        """Frees the model's memory when no step runs any more, blocking; no step runs after that."""
        with self._working:
            self._released = True
            self._rows.close()
            self._loaded.close()

    def _improve(self, budget: TimeBudget, is_wanted: Callable[[], bool]) -> None:
        self._tell_step("larger batches")
        before = self._sizes
        self._grow(budget, is_wanted)
        if budget.cancelled:  # the version ends, or a newer one goes first: nothing was found
            return
        self.tell_rows()
        self._adopt()
        if self._sizes != before:
            self._finished.clear()

        self._tell_step("execution variants")
        self._take("variants", budget.part(_SEARCH_SHARE), self._choose_variants)
        self._tell_step("shared calls of different shapes")
        self._take("padding", budget.part(1.0), self._probe_padding)

        if not budget.cancelled:
            self._adopt()
            self._tell_found(self._choices)
            logger.info("%s is tuned, for batches of up to %d rows%s", self, self._sizes.largest, self._rest(budget))

    def _take(self, name: str, budget: TimeBudget, step: Callable[[TimeBudget], None]) -> None:
        """Takes a step, unless it had all the time that it needs in an earlier round."""
        if name not in self._finished:
            with self._calls.within(budget):
                step(budget)
            if not (budget.short or budget.cancelled):
                self._finished.add(name)

    def _rest(self, budget: TimeBudget) -> str:
        """The end of a log line: when the steps that did not fit into the budget follow."""
        if not budget.short:
            return ""
        later = "left out" if self._round == _MOST_ROUNDS else "done later"
        return f"; what did not fit into {budget.seconds:g} s is {later} (load_budget_s)"

    # --- larger batches ---

    def _grow(self, budget: TimeBudget, is_wanted: Callable[[], bool]) -> None:
        """Calls the larger batch sizes, and compares rows in them where the graph proves nothing."""
        why = ""
        for rows in self.model.sizes.allowed:
            if rows > self._largest_possible or self._rows.taken(self.model.sizes).largest < rows:
                break
            if rows > self._sizes.largest:
                if why := self._why_not(rows, budget, is_wanted):
                    break
                self._sizes = BatchSizes(tuple(sorted({*self._sizes.allowed, rows})))
        self._sizes = self._rows.taken(self._sizes)
        if self._probed != self._sizes and not self._rows.is_settled(self._sizes):
            part = budget.part(_ROWS_SHARE)
            self._rows.by_probe(self._calls, self._signatures, self._sizes, part)
            if not (part.short or part.cancelled):
                self._probed = self._sizes
        if why and not budget.cancelled:
            logger.warning("%s gets batches of at most %d rows: %s", self, self._sizes.largest, why)

    def _why_not(self, rows: int, budget: TimeBudget, is_wanted: Callable[[], bool]) -> str:
        """Calls batches of `rows` rows. Returns why they cannot be called; empty if they were."""
        batchable = {name: each for name, each in self._signatures.items() if each.shares_calls}
        try:
            if any(self._calls.memory.is_tight(name, rows * _row_cells(each)) for name, each in batchable.items()):
                self._measure_memory(budget, is_wanted)
            limits = self._rows.limits
            warm_up(self._calls, [rows], self._report, batchable, larger=True, limits=limits)
            self._rows.limit(limits)
        except ServingError as reason:
            self._largest_possible = self._sizes.largest
            return str(reason)
        except TooMuchMemory as reason:
            if self._measured:
                self._largest_possible = self._sizes.largest
            else:  # there may be more at another time
                budget.mark_short()
            return str(reason)
        except OverBudget as reason:
            return str(reason)
        return ""

    def _measure_memory(self, budget: TimeBudget, is_wanted: Callable[[], bool]) -> None:
        """Lets a child process call the larger batch sizes first, since they might take more memory than there is."""
        sizes = [rows for rows in self.model.sizes.allowed if self._sizes.largest < rows <= self._largest_possible]
        part = budget.part(_TRIAL_SHARE)
        if self._measured or not part.allows():
            return
        trial = self._memory_trial([*self._sizes.allowed[:1], *sizes], self._calls.memory.call_bytes)
        try:
            measure_in_child(trial, self._calls.memory, lambda: part.left_s > 0 and is_wanted())
            self._measured = True
        except TrialFailed as reason:
            logger.info("%s: what its calls take is estimated, since in a child process %s", self, reason)

    @property
    def _signatures(self) -> Mapping[str, ModelSignature]:
        """The signatures by which requests are placed, as far as rows are proven now."""
        return self._rows.settled(self._seen)

    # --- the other steps ---

    def _choose_variants(self, budget: TimeBudget) -> None:
        # The limit of a signature that takes few rows may be no allowed size.
        limits = [rows for rows in self._rows.limits.values() if rows < self._sizes.largest]
        sizes = sorted({*self._sizes.allowed, *limits})
        self._choices = tune(self._loaded, sizes, self._report, budget)
        self._costs = measure_calls(self._calls, self._signatures, self._sizes.allowed, self._calls.work_clock)

    def _probe_padding(self, budget: TimeBudget) -> None:
        """Finds which requests of different shapes may share calls, and compiles the shapes that they are padded to.

        A padding that was found before stays if there is no time to find it again. A padding that changed answers of
        requests never comes back, nor does one of a signature whose requests run alone by now.
        """
        settings, signatures = self._settings, self._signatures
        buckets = ShapeBuckets(tuple(settings.shape_buckets))
        options = PaddingOptions(settings.pad_shapes, buckets, of_model(settings.pad_values, self.model.name))
        found = probe_padding(self._calls, self._sizes, options, signatures=signatures)
        for name, before in self._paddings.items():
            if before.padding is not None and not before.padding.enabled:
                self._disproved[name] = ProbedPadding(None, "it changed the answers of requests")
            elif name in found and not found[name].in_budget and before.padding is not None:
                found[name] = before
        self._paddings = found | {name: probed for name, probed in self._disproved.items() if name in found}
        if settings.pad_shapes == "auto":
            compile_buckets(self._loaded, signatures, self._paddings, self._sizes.allowed, self._report, budget=budget)

    def _adopt(self) -> None:
        self._on_loop(partial(self._use, _Adopted(self._sizes, self._paddings, self._costs)))

    def _use(self, found: _Adopted) -> None:
        self._adopted = found
        self.model.adopt(self._place(signatures=self._signatures, **found._asdict()))

    def _rows_changed(self) -> None:
        """Tells that a proof of rows changed beside the steps. Called on the event loop.

        The page changes in the turn of the event loop in which requests follow, as after a step.
        """
        if not self._released:
            self.tell_rows()
            self._on_loop(self._use_again)

    def _use_again(self) -> None:
        if not self._released:
            self._use(self._adopted)

    # --- events ---

    def tell_rows(self) -> None:
        """Tells listeners the verdicts on rows that changed since the last time."""
        for news in self._rows.news(self.model.version):
            self._tell(news)

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


def _row_cells(signature: ModelSignature) -> int:
    """The elements of one row of its sample inputs."""
    return sum(array.size for array in zero_inputs(signature, 1).values()) or 1


def _call(work: Callable[[], None]) -> None:
    work()


def _report_nothing(done: int, total: int, what: str) -> None:
    """A report that does nothing: the background steps tell their progress by events."""
