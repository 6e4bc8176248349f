"""Calls a model at its batch sizes before requests do, because the first call of each shape is slow."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import NamedTuple

from app.core.batch_sizes import BatchSizes, most_accepted
from app.core.errors import InvalidRequest, OutOfMemory
from app.core.inference import Array, ModelSignature
from app.core.optional_inputs import with_left_out
from app.core.time_budget import OverBudget, TimeBudget
from app.loading.values.accepted_rows import accepted_inputs
from app.runtime import LoadedModel, ProgressReport, TunableModel, VariantChoice, replicas_of

logger = logging.getLogger(__name__)

#: Seconds to measure the calls of one signature; the sizes that are left are estimated. Chosen.
_MEASURING_S = 1.0

#: Calls of one size that are timed at most, and seconds after which none is added. Chosen.
_MOST_TIMED, _SIZE_S = 10, 0.02


def warm_up(
    model: LoadedModel,
    sizes: Sequence[int],
    report: ProgressReport,
    signatures: Mapping[str, ModelSignature] | None = None,
    *,
    larger: bool = False,
    limits: dict[str, int] | None = None,
) -> Sequence[int]:
    """Call every signature at every size, ascending, on every replica; a signature that shares no calls once, one that
    writes state never.

    A signature that rejects the sample inputs (an image decoder that gets no image) stays cold, with a warning.
    A size for which the device has no memory, or the model's time budget no time, is dropped with all larger ones.
    Returns the sizes that are left, at least the first one.

    Args:
        signatures: as callers see them, if they may leave masks out.
        larger: they were called at smaller sizes before: a signature that rejects the sample inputs was told then.
        limits: gets, by signature, the most rows of a call, where the model accepts the sample inputs in smaller ones.

    Raises:
        InferenceFailed: the model or the device failed; OutOfMemory if the first size does not fit into the device.
        NoTimeLeft: the first size cannot be called any more.
    """
    seen = model.signatures if signatures is None else signatures
    calls = [
        (replica, signature) for replica in replicas_of(model) for signature in seen.values() if not signature.writes
    ]
    total = sum(len(sizes) if signature.shares_calls else 1 for _, signature in calls)
    left, done, limits = list(sizes), 0, {} if limits is None else limits
    for replica, signature in calls:
        most_rows = limits.get(signature.name) or signature.most_rows or inf
        all_rows = [rows for rows in left if rows <= most_rows] if signature.shares_calls else [1]
        progress = _Progress(report, done, total)
        warm = _warm_signature(replica, signature, all_rows, progress, limits, larger=larger)
        if signature.shares_calls and len(warm) < len(all_rows):
            left = left[: len(warm)]
        done += len(sizes) if signature.shares_calls else 1
    return left


class _Progress(NamedTuple):
    """Counts the calls of one signature on, from those that are done."""

    report: ProgressReport
    done: int
    total: int

    def tell(self, more: int, what: str) -> None:
        self.report(self.done + more, self.total, what)


def _warm_signature(
    model: LoadedModel,
    signature: ModelSignature,
    all_rows: Sequence[int],
    progress: _Progress,
    limits: dict[str, int],
    *,
    larger: bool,
) -> Sequence[int]:
    """The first of the sizes, up to one that cannot be called; see `warm_up`."""
    warm: list[int] = []
    for rows in all_rows:
        progress.tell(len(warm) + 1, f"signature {signature.name!r} with {rows} {'row' if rows == 1 else 'rows'}")
        inputs = _inputs(model, signature, rows)
        try:
            model.run(signature.name, inputs, ())
            warm.append(rows)
            if rows == all_rows[0] and len(all_rows) > 1:
                model.run(signature.name, inputs, ())  # what the first call takes says little about larger ones
        except InvalidRequest as rejection:
            if most_rows := _limit_of_rows(model, signature, rows, warm):
                logger.info(
                    "Signature %r takes at most %d rows in a call: batches have no more: %s",
                    signature.name, most_rows, rejection,
                )  # fmt: skip
                limits[signature.name] = most_rows
                return all_rows
            logger.log(
                logging.DEBUG if larger else logging.INFO,  # the model decides what it takes, as for tf.Examples
                "Signature %r is not warmed up, because it rejects the sample inputs: %s", signature.name, rejection,
            )  # fmt: skip
            return all_rows
        except (OutOfMemory, OverBudget) as reason:
            if not warm:
                raise
            if isinstance(reason, OutOfMemory):
                logger.warning("Signature %r has no memory for %d rows: %s", signature.name, rows, reason)
            break
    return warm


def _limit_of_rows(model: LoadedModel, signature: ModelSignature, refused: int, warm: Sequence[int]) -> int:
    """The most rows of a call, by halving; 0 if the model rejects the sample inputs, or two of them, by themselves."""

    def accepts(rows: int) -> bool:
        try:
            model.run(signature.name, _inputs(model, signature, rows), ())
        except InvalidRequest:
            return False
        return True

    if refused == 1 or not (warm or accepts(1)):
        return 0
    most_rows = most_accepted(accepts, warm[-1] if warm else 1, refused)
    return most_rows if most_rows > 1 else 0


def limited(sizes: BatchSizes, signatures: Mapping[str, ModelSignature]) -> BatchSizes:
    """The sizes up to the most rows of a call that one of the signatures takes."""
    called = [each.most_rows for each in signatures.values() if each.shares_calls and not each.writes]
    return sizes.up_to(max(called)) if called and all(called) else sizes


def _inputs(model: LoadedModel, signature: ModelSignature, rows: int) -> dict[str, Array]:
    inputs = accepted_inputs(model, signature, rows)
    return with_left_out(signature, {name: array for name, array in inputs.items() if name not in signature.masks})


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
        if signature.shares_calls and not (signature.alone or signature.writes) and signature.fixed_inner_shapes:
            budget, found = TimeBudget(_MEASURING_S, clock), dict[int, float]()
            for rows in sizes:
                if not budget.allows() or rows > (signature.most_rows or rows):
                    break
                try:
                    found[rows] = _least_s(partial(_timed_run, model, signature, rows, clock))
                except (InvalidRequest, OverBudget):
                    break
            if found:
                costs[signature.name] = found
    return costs


def _least_s(timed: Callable[[], float]) -> float:
    """Of several calls, since the others may have been disturbed; of a long call only two."""
    found = [timed(), timed()]
    while len(found) < _MOST_TIMED and sum(found) < _SIZE_S:
        found.append(timed())
    return min(found)


def _timed_run(model: LoadedModel, signature: ModelSignature, rows: int, clock: Callable[[], float]) -> float:
    inputs = accepted_inputs(model, signature, rows)
    begin_s = clock()
    model.run(signature.name, inputs, ())
    return clock() - begin_s
