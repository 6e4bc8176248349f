"""Calls a model at every batch size before its first request, because the first call of each shape is slow."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from app.core.errors import InvalidRequest
from app.core.inference import Array, ModelSignature
from app.core.masks import with_masks
from app.core.sample_inputs import zero_inputs
from app.core.time_budget import TimeBudget
from app.runtime import LoadedModel, ProgressReport, TunableModel, VariantChoice, replicas_of

logger = logging.getLogger(__name__)

#: Seconds to measure the calls of one signature; the sizes that are left are estimated. Chosen.
_MEASURING_S = 1.0


def warm_up(
    model: LoadedModel,
    sizes: Sequence[int],
    report: ProgressReport,
    signatures: Mapping[str, ModelSignature] | None = None,
) -> None:
    """Call every signature at every size on every replica; a signature that is not batchable once, one that writes
    state never.

    A signature that rejects the sample inputs (an image decoder that gets no image) stays cold, with a warning.

    Args:
        signatures: as callers see them, if they may leave masks out.

    Raises:
        InferenceFailed: the model or the device failed; OutOfMemory if a size does not fit into the device.
    """
    seen = model.signatures if signatures is None else signatures
    calls = [
        (replica, signature, sizes if signature.batchable else (1,))
        for replica in replicas_of(model)
        for signature in seen.values()
        if not signature.writes
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
                logger.warning(
                    "Signature %r is not warmed up, because it rejects the sample inputs: %s", signature.name, rejection
                )
                break
        done += len(all_rows)


def _inputs(signature: ModelSignature, rows: int) -> dict[str, Array]:
    inputs = zero_inputs(signature, rows)
    return with_masks(signature, {name: array for name, array in inputs.items() if name not in signature.masks})


def tune(
    model: LoadedModel, sizes: Sequence[int], report: ProgressReport, budget: TimeBudget
) -> Sequence[VariantChoice]:
    """Let a model that has execution variants find the fastest; nothing for any other model."""
    return model.tune(sizes, report, budget) if isinstance(model, TunableModel) else ()


def measure_calls(
    model: LoadedModel,
    signatures: Mapping[str, ModelSignature],
    sizes: Sequence[int],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, dict[int, float]]:
    """Seconds of a warm call, by signature and batch size, small sizes first, as far as the time allows.

    Left out are signatures that are not batchable or run alone, that reject the sample inputs, or whose inner shapes
    are free (what their calls cost depends on the shapes of requests).

    Raises:
        InferenceFailed: the model or the device failed.
    """
    costs: dict[str, dict[int, float]] = {}
    for signature in signatures.values():
        if signature.batchable and not (signature.alone or signature.writes) and signature.fixed_inner_shapes:
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
    inputs = zero_inputs(signature, rows)
    begin_s = clock()
    model.run(signature.name, inputs, ())
    return clock() - begin_s
