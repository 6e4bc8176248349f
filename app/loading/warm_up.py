"""Running a model once at every size before its first caller, so that no caller pays for first calls."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from app.core.errors import InvalidRequest
from app.core.examples import example_inputs
from app.core.inference import Array, ModelSignature
from app.core.masks import with_masks
from app.core.time_budget import TimeBudget
from app.runtime import LoadedModel, ProgressReport, TunableModel, VariantChoice, replicas_of

logger = logging.getLogger(__name__)

#: Most time that measuring the calls of one signature takes before the sizes that are left are estimated.
_MEASURING_S = 1.0


def warm_up(
    model: LoadedModel,
    sizes: Sequence[int],
    report: ProgressReport,
    signatures: Mapping[str, ModelSignature] | None = None,
) -> None:
    """Runs every signature at every size, the ones that cannot be batched once, on every replica.

    A signature that rejects the example values (an image decoder, given no image) stays cold, with a warning.

    Args:
        signatures: the model's as callers see them, where they may leave masks out.

    Raises:
        InferenceFailed: the model or the device failed; OutOfMemory, if a size does not fit the device.
    """
    seen = model.signatures if signatures is None else signatures
    calls = [
        (replica, signature, sizes if signature.batchable else (1,))
        for replica in replicas_of(model)
        for signature in seen.values()
    ]
    total = sum(len(rows) for *_, rows in calls)
    done = 0
    for replica, signature, all_rows in calls:
        for count, rows in enumerate(all_rows, start=1):
            what = f"signature {signature.name!r} with {rows} {'row' if rows == 1 else 'rows'}"
            report(done + count, total, what)
            try:
                replica.run(signature.name, _inputs(signature, rows), ())
            except InvalidRequest as rejection:
                logger.warning("Signature %r stays cold, it rejects the example values: %s", signature.name, rejection)
                break
        done += len(all_rows)


def _inputs(signature: ModelSignature, rows: int) -> dict[str, Array]:
    inputs = example_inputs(signature, rows)
    return with_masks(signature, {name: array for name, array in inputs.items() if name not in signature.masks})


def tune(
    model: LoadedModel, sizes: Sequence[int], report: ProgressReport, budget: TimeBudget
) -> Sequence[VariantChoice]:
    """Let a model that has execution variants find the fastest; nothing for any other model."""
    return model.tune(sizes, report, budget) if isinstance(model, TunableModel) else ()


def measure_calls(
    model: LoadedModel, sizes: Sequence[int], clock: Callable[[], float] = time.perf_counter
) -> dict[str, dict[int, float]]:
    """Seconds of a warm call by signature and batch size, small sizes first, as far as the time goes.

    Signatures that cannot be batched, that reject the example values or whose inner shapes are free (their calls
    cost what their callers' shapes do) are left out.

    Raises:
        InferenceFailed: the model or the device failed.
    """
    costs: dict[str, dict[int, float]] = {}
    for signature in model.signatures.values():
        if signature.batchable and _shapes_are_fixed(signature):
            budget, found = TimeBudget(_MEASURING_S, clock), dict[int, float]()
            for rows in sizes:
                if not budget.allows():
                    break
                try:
                    found[rows] = min(_timed_run(model, signature, rows, clock) for _ in range(2))
                except InvalidRequest:
                    break
            if found:
                costs[signature.name] = found
    return costs


def _timed_run(model: LoadedModel, signature: ModelSignature, rows: int, clock: Callable[[], float]) -> float:
    inputs = example_inputs(signature, rows)
    begin_s = clock()
    model.run(signature.name, inputs, ())
    return clock() - begin_s


def _shapes_are_fixed(signature: ModelSignature) -> bool:
    return all(spec.shape is not None and None not in spec.shape[1:] for spec in signature.inputs.values())
