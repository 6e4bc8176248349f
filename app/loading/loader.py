"""How a model is made ready to answer: the one owner of all steps of a load.

1. A load that fails at any step closes the model: nothing of it stays in memory.
2. Steps that only make calls faster (execution variants, compiled buckets) share one time budget, `variant_search_s`.
   Its clock does not stop: the measuring and probing between these steps uses it up, too.
3. Events are sent after the model is ready.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from app.batching.batcher import Batcher
from app.batching.shapes.buckets import ShapeBuckets
from app.config.batching_parameters import FILE_NAME as PARAMETERS_FILE
from app.config.batching_parameters import read_batching_parameters
from app.config.settings import Settings
from app.core.batch_sizes import BatchSizes
from app.core.events import Listener, ModelPlaced, RowsProbed, ShapesProbed, VariantsChosen
from app.core.inference import ModelSignature
from app.core.masks import with_declared_masks
from app.core.time_budget import TimeBudget
from app.loading.bucket_compilation import compile_buckets
from app.loading.padding_probe import PaddingOptions, ProbedPadding, probe_padding
from app.loading.row_independence import RowIndependence
from app.loading.warm_up import measure_calls, tune, warm_up
from app.model import Model
from app.placement import RequestPlacement
from app.runtime import LoadedModel, Runtime, VariantChoice, replicas_of

logger = logging.getLogger(__name__)

_Value = TypeVar("_Value")

#: Most seconds that the probe of rows takes for one model. Chosen: enough for all but the largest size of models that
#: take 0.3 s a row.
_ROW_PROBE_S = 5.0


class Loader:
    """Loads versions of models, blocking, one at a time: the repository calls it on its loader thread.

    Args:
        sizes: the batch sizes of a model that brings no batching parameters of its own.
        tell: takes events, on the thread that loads.
    """

    def __init__(
        self, settings: Settings, sizes: BatchSizes, runtime: Runtime, batcher: Batcher, tell: Listener
    ) -> None:
        self._settings = settings
        self._sizes = sizes
        self._runtime = runtime
        self._batcher = batcher
        self._tell = tell
        self._progress: dict[tuple[str, int], str] = {}

    @property
    def progress(self) -> list[str]:
        """What each warm-up in progress does now, as a sentence. May be called from any thread."""
        return list(self._progress.values())

    def load(self, name: str, version: int, path: Path) -> Model:
        """Read the version in folder `path` and make it ready.

        Raises:
            InvalidRequest: its batching parameters are wrong.
            InferenceFailed: the folder holds no model that can be loaded, or the model failed during warm-up.
        """
        sizes = self._batch_sizes(path)
        loaded = self._runtime.load(path)
        try:
            return self._make_ready(name, version, loaded, sizes)
        except BaseException:
            loaded.close()
            raise
        finally:
            self._progress.pop((name, version), None)

    def _batch_sizes(self, path: Path) -> BatchSizes:
        settings, file = self._settings, path / PARAMETERS_FILE
        if settings.per_model_batching and settings.batching and file.exists():
            return read_batching_parameters(file).sizes(self._sizes)
        return self._sizes

    def _make_ready(self, name: str, version: int, loaded: LoadedModel, sizes: BatchSizes) -> Model:
        settings = self._settings
        choices: Sequence[VariantChoice] = ()
        costs: Mapping[str, Mapping[int, float]] = {}
        paddings: Mapping[str, ProbedPadding] = {}

        # 1. The signatures as callers see them: they may leave out the masks that settings declare.
        for setting in ("pad_values", "mask_inputs"):
            warn_of_unknown(setting, getattr(settings, setting), name, loaded.signatures)
        signatures: Mapping[str, ModelSignature] = with_declared_masks(
            loaded.signatures, of_model(settings.mask_inputs, name)
        )
        rows = RowIndependence(name, settings.row_independence)
        signatures = rows.by_graph(signatures)

        if settings.warm_up:
            # 2. First calls at every batch size; a failure fails the load.
            report = partial(self._report, name, version)
            warm_up(loaded, sizes.allowed, report, signatures)

            # 3. Whose rows see each other.
            signatures = rows.by_probe(loaded, signatures, sizes, TimeBudget(_ROW_PROBE_S))

            # 4. The fastest execution variants, then what calls cost with them.
            budget = TimeBudget(settings.variant_search_s)
            choices = tune(loaded, sizes.allowed, report, budget)
            costs = measure_calls(loaded, signatures, sizes.allowed)

            # 5. Which requests of different shapes may share calls, and what is worth compiling for them.
            buckets = ShapeBuckets(tuple(settings.shape_buckets))
            options = PaddingOptions(settings.pad_shapes, buckets, of_model(settings.pad_values, name))
            paddings = probe_padding(loaded, sizes, options, signatures=signatures)
            if settings.pad_shapes == "auto":
                compile_buckets(loaded, signatures, paddings, sizes.allowed, report, budget=budget)

        # 6. The model; then the events.
        placement = RequestPlacement(
            name,
            version,
            loaded,
            sizes,
            batching=settings.batching,
            strict_shapes=settings.strict_shapes,
            paddings={signature: probed.padding for signature, probed in paddings.items() if probed.padding},
            costs=costs,
            signatures=signatures,
        )
        model = Model(placement, self._batcher)
        for signature in sorted({choice.signature for choice in choices}):
            variants = {
                each.batch_size: (each.variant, each.speed_up) for each in choices if each.signature == signature
            }
            self._tell(VariantsChosen(name, version, signature, variants))
        for signature, found in rows.found.items():
            self._tell(RowsProbed(name, version, signature, bool(found.alone), bool(found.unproven), str(found)))
        for signature, probed in paddings.items():
            self._tell(ShapesProbed(name, version, signature, probed.padding is not None, str(probed)))
        self._tell(ModelPlaced(name, version, self._runtime.devices[: len(replicas_of(loaded))]))
        return model

    def _report(self, name: str, version: int, done: int, total: int, what: str) -> None:
        progress = f"Model {name} version {version} warms up: {done} of {total}, {what}"
        logger.log(logging.INFO if done in {1, total} or done % 10 == 0 else logging.DEBUG, "%s", progress)
        self._progress[name, version] = progress


def of_model(values: Mapping[str, _Value], model: str) -> dict[str, _Value]:
    """A setting's values for this model, by input: 'model/input' is for that model alone and overrides 'input'."""
    own = {name.removeprefix(f"{model}/"): value for name, value in values.items() if name.startswith(f"{model}/")}
    return {**values, **own}


def warn_of_unknown(
    setting: str, values: Mapping[str, object], model: str, signatures: Mapping[str, ModelSignature]
) -> None:
    """Warns of 'model/input' names whose input this model lacks; a name without a model may be another model's."""
    known = {name for signature in signatures.values() for name in signature.inputs}
    for name in values:
        of, _, given = name.partition("/")
        if of == model and given and given not in known:
            inputs = ", ".join(sorted(known))
            logger.warning("%s names %s, but the inputs of model %s are: %s", setting, name, model, inputs)
