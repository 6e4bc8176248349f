"""The loader of models: the one owner of all steps of a load.

1. A load that fails at any step closes the model: nothing of it stays in memory.
2. A version is ready as soon as it answers small batches. Its improvement (improvement.py) follows in the background,
   or, with ready_when=tuned, before it is ready.
3. Both share one time budget, `load_budget_s`. Reading the model is not counted: it cannot be left out. Steps that do
   not fit follow later, in the background.
"""

from __future__ import annotations

import gc
import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

from app.batching.batcher import Batcher
from app.batching.dispatch.first_answers import FirstAnswers
from app.config.batching_parameters import FILE_NAME as PARAMETERS_FILE
from app.config.batching_parameters import read_batching_parameters
from app.config.settings import Settings
from app.core.batch_sizes import BatchSizes
from app.core.errors import InvalidRequest, OutOfMemory, ServingError, drop_frames
from app.core.events import Listener, ModelPlaced, RowsProbed
from app.core.inference import ModelSignature
from app.core.machine_memory import available_bytes
from app.core.time_budget import TimeBudget
from app.core.whole_requests import why_whole
from app.loading.budgeted_model import BudgetedModel
from app.loading.call_memory import MemoryBudget
from app.loading.improvement import Improvement
from app.loading.improver import Improver
from app.loading.labels import read_labels, with_labels
from app.loading.memory_trial import MemoryTrial
from app.loading.padding_probe import ProbedPadding
from app.loading.rows.row_independence import RowIndependence, setting_of
from app.loading.rows.row_proofs import RowProofs
from app.loading.settings_of_model import caller_signatures
from app.loading.switch_interval import short_switch_interval
from app.loading.values.warm_up_requests import read_known_rows
from app.loading.warm_up import warm_up
from app.model import Model
from app.placement import RequestPlacement
from app.runtime import LoadedModel, ProgressReport, Runtime, devices_needed, note_of, replicas_of

logger = logging.getLogger(__name__)

#: A version is ready when it has answered batches of up to this many rows, as far as that takes _FIRST_S. Chosen: that
#: keeps a server busy while it grows, and most models answer such batches within milliseconds.
_FIRST_ROWS = 8
_FIRST_S = 1.0

#: A load is given up before its first calls if less memory is left. Chosen: half of the least memory before a load.
_LEAST_LEFT_BYTES = 16 * 2**20

#: Most seconds that the probe of rows takes for one model. Chosen: enough for all but the largest size of models that
#: take 0.3 s a row.
_ROW_PROBE_S = 5.0

#: Where max_queue_size says nothing, a caller may ask for batches of this many rows. Chosen: they are warmed up.
_MOST_OVERRIDDEN_ROWS = 8192


class Loader:
    """Loads versions of models, blocking: the repository calls it on its loader threads.

    Args:
        sizes: the batch sizes of a model without batching parameters.
        tell: takes events, on the thread that loads.
        on_loop: calls a function on the event loop, from any thread.
        proofs: kept proofs of rows; None begins without any, and keeps new ones in memory.
    """

    def __init__(
        self,
        settings: Settings,
        sizes: BatchSizes,
        runtime: Runtime,
        batcher: Batcher,
        *,
        tell: Listener,
        on_loop: Callable[[Callable[[], None]], object],
        proofs: RowProofs | None = None,
    ) -> None:
        self._settings = settings
        self._sizes = sizes
        self._runtime = runtime
        self._batcher = batcher
        self._tell = tell
        self._on_loop = on_loop
        self._loading: set[tuple[str, int]] = set()
        self._progress: dict[tuple[str, int], str] = {}
        self._proofs = proofs or RowProofs(None)
        self._improver = Improver(lambda: batcher.idle and not self._loading)

    @property
    def progress(self) -> list[str]:
        """The present step of each warm-up, as a sentence. May be called from any thread."""
        return list(self._progress.values())

    def load(self, name: str, version: int, path: Path, batch_sizes: Sequence[int] = ()) -> Model:
        """Read the version in folder `path` and make it ready.

        Args:
            batch_sizes: row counts, ascending, that replace those of the settings and of the version's own parameters.

        Raises:
            InvalidRequest: its batching parameters are wrong, pad_values does not fit one of its inputs, or
                `batch_sizes` are given where requests are not batched.
            InferenceFailed: the folder holds no model that can be loaded, or no call of the model can succeed.
        """
        self._loading.add((name, version))
        try:
            with short_switch_interval():
                return self._load(name, version, path, batch_sizes)
        except BaseException as error:
            if not isinstance(error, ServingError):  # unexpected: the log needs its frames, as text
                error.add_note("".join(traceback.format_exception(error)))
            drop_frames(error)
            gc.collect()
            raise error.with_traceback(None)  # noqa: B904 - it is the same error
        finally:
            self._progress.pop((name, version), None)
            self._loading.discard((name, version))

    def _load(self, name: str, version: int, path: Path, batch_sizes: Sequence[int]) -> Model:
        sizes = self._override(batch_sizes) if batch_sizes else self._batch_sizes(path)
        loaded = self._runtime.load(path)
        try:
            self._check_left()
            return self._make_ready(name, version, loaded, sizes, path)
        except BaseException:
            loaded.close()
            raise

    def _check_left(self) -> None:
        """Raises OutOfMemory if reading the model took more than was expected, and its calls may end the server."""
        left = available_bytes()
        if left < _LEAST_LEFT_BYTES:
            raise OutOfMemory(
                f"it took more memory than expected: {left / 2**20:,.0f} MB are left after it was read, and its calls "
                f"and the other models need {_LEAST_LEFT_BYTES >> 20}; it was given up before it was called"
            )

    def close(self) -> None:
        """Begin no further work in the background. Does not wait for the present call of a model."""
        self._improver.close()

    def _override(self, batch_sizes: Sequence[int]) -> BatchSizes:
        settings = self._settings
        if not settings.batching:
            raise InvalidRequest("max_batch_size cannot be overridden: batching is off (setting batching)")
        most_rows = settings.max_queue_size or _MOST_OVERRIDDEN_ROWS
        if batch_sizes[-1] > most_rows:
            raise InvalidRequest(f"max_batch_size is {batch_sizes[-1]}, but should be at most {most_rows} here")
        return BatchSizes(tuple(batch_sizes))

    def _batch_sizes(self, path: Path) -> BatchSizes:
        settings, file = self._settings, path / PARAMETERS_FILE
        if settings.per_model_batching and settings.batching and file.exists():
            return read_batching_parameters(file).sizes(self._sizes)
        return self._sizes

    def _make_ready(self, name: str, version: int, loaded: LoadedModel, sizes: BatchSizes, path: Path) -> Model:
        # 1. The signatures as callers see them. Requests share calls of signatures that are proven by their graph.
        settings = self._settings
        rows = RowIndependence(name, settings.row_independence, self._proofs)
        signatures = rows.by_graph(with_labels(caller_signatures(loaded.signatures, name, settings), read_labels(path)))
        known_rows = read_known_rows(path, signatures)
        memory = MemoryBudget() if self._runtime.devices[0].startswith("CPU") else MemoryBudget.unlimited()
        budgeted = partial(BudgetedModel, loaded, memory=memory, known_rows=known_rows)

        # 2. First calls, of small batches. A failed call costs its size; warm_up.py says which fail the load.
        report = partial(self._report, name, version)
        first, calls = self._first_calls(budgeted, rows, signatures, sizes, report)

        # 3. The probe of rows in small batches, where graphs prove nothing.
        probe_budget = TimeBudget(_ROW_PROBE_S) if settings.warm_up else calls.budget
        signatures = rows.by_probe(calls, signatures, first, probe_budget)

        # 4. The model, and its improvement.
        place = partial(self._place, name, version, loaded, rows, {})
        model = Model(place(signatures=signatures, sizes=first), self._batcher, sizes)
        improvement = Improvement(
            model,
            loaded,
            calls,
            sizes=first,
            rows=rows,
            settings=settings,
            place=place,
            tell=self._tell,
            on_loop=self._on_loop,
            memory_trial=self._memory_trial(path),
        )
        self._tell(ModelPlaced(name, version, self._devices(loaded), note_of(loaded)))
        model.release = improvement.release
        improvement.tell_rows()
        self._tell_whole(model)
        in_advance = settings.ready_when == "tuned"
        if settings.warm_up and (not in_advance or improvement.run_in_advance(report)):
            self._improver.add(improvement)
        return model

    def _tell_whole(self, model: Model) -> None:
        """Tells listeners which signatures never share calls, by their shapes or kinds of rows."""
        for name, signature in model.signatures.items():
            if why := why_whole(signature):
                told = f"each request runs alone: {why}"
                self._tell(RowsProbed(model.name, model.version, name, True, "", told, whole=True))

    def _first_calls(
        self,
        budgeted: Callable[[TimeBudget], BudgetedModel],
        rows: RowIndependence,
        signatures: Mapping[str, ModelSignature],
        sizes: BatchSizes,
        report: ProgressReport,
    ) -> tuple[BatchSizes, BudgetedModel]:
        """The sizes at which the version is ready, and the model for further calls. Without warm-up no call is made."""
        settings = self._settings
        if not settings.warm_up:
            return sizes, budgeted(TimeBudget(max(_ROW_PROBE_S, settings.load_budget_s)))
        budget = TimeBudget(settings.load_budget_s)
        calls = budgeted(TimeBudget(_FIRST_S))
        small = [size for size in sizes.allowed if size <= max(sizes.allowed[0], _FIRST_ROWS)]
        limits: dict[str, int] = {}
        first = BatchSizes(tuple(warm_up(calls, small, report, signatures, limits=limits)))
        rows.limit(limits)
        calls.use(budget)
        return rows.taken(first), calls

    def _memory_trial(self, path: Path) -> Callable[[Sequence[int], float], MemoryTrial]:
        settings = self._settings
        return partial(
            MemoryTrial,
            str(path),
            settings.runtime,
            allowed_operations=tuple(settings.allowed_operations),
            operation_libraries=tuple(settings.operation_libraries),
        )

    def _place(
        self,
        name: str,
        version: int,
        loaded: LoadedModel,
        rows: RowIndependence,
        first_answers: dict[str, FirstAnswers],
        *,
        signatures: Mapping[str, ModelSignature],
        sizes: BatchSizes,
        paddings: Mapping[str, ProbedPadding] = MappingProxyType({}),
        costs: Mapping[str, Mapping[int, float]] = MappingProxyType({}),
    ) -> RequestPlacement:
        return RequestPlacement(
            name,
            version,
            loaded,
            sizes,
            batching=self._settings.batching,
            strict_shapes=self._settings.strict_shapes,
            max_row_elements=self._settings.max_row_elements,
            paddings={signature: probed.padding for signature, probed in paddings.items() if probed.padding},
            costs=costs,
            signatures=signatures,
            unchecked=self._forced(name, signatures),
            unproven=rows.unproven(sizes),
            on_traffic=rows.by_traffic,
            on_stopped=rows.stopped,
            first_answers={each: first_answers.setdefault(each, FirstAnswers()) for each in rows.proven_by_calls},
        )

    def _forced(self, model: str, signatures: Mapping[str, ModelSignature]) -> set[str]:
        """The signatures for which a setting says to pad, or to share calls, even if that changes answers."""
        always, wanted = self._settings.pad_shapes == "always", self._settings.row_independence
        return {name for name in signatures if always or setting_of(wanted, model, name) == "assume"}

    def _devices(self, loaded: LoadedModel) -> Sequence[str]:
        """The device of each replica; of a replica on several devices all of them, as 'GPU:0+GPU:1'."""
        if needed := devices_needed(loaded):
            return ("+".join(needed),)
        return self._runtime.devices[: len(replicas_of(loaded))]

    def _report(self, name: str, version: int, done: int, total: int, what: str) -> None:
        progress = f"Model {name} version {version} warms up: {done} of {total}, {what}"
        logger.log(logging.INFO if done in {1, total} or done % 10 == 0 else logging.DEBUG, "%s", progress)
        self._progress[name, version] = progress
