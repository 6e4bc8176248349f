"""The warm-up: calls of a model at its batch sizes before requests, because the first call of each shape is slow.

Rules
- These calls have made-up values and sizes. A failed call shows little about requests, so it costs the size, or the
  warmth of the signature, and not the version.
- Two failures end the load: no memory for the smallest size, and a model that lacks a part that all calls need.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf

from app.core.batch_sizes import most_accepted
from app.core.errors import InvalidRequest, ModelUnusable, OutOfMemory, ServingError
from app.core.inference import Array, ModelSignature
from app.core.optional_inputs import with_left_out
from app.core.time_budget import OverBudget, TimeBudget
from app.core.values.sample_inputs import inner_sizes
from app.loading.values.accepted_rows import accepted_inputs
from app.runtime import LoadedModel, ProgressReport, TunableModel, VariantChoice, replicas_of

logger = logging.getLogger(__name__)

#: Seconds to measure the calls of one signature; the sizes that are left are estimated. Chosen.
_MEASURING_S = 1.0

#: Sizes of open dimensions beside the rows, one after the other, until a call succeeds. Chosen: a network that halves
#: an image several times needs a large one, and most take whole multiples of powers of two.
_OPEN_SIZES = (1, 2, 8, 16, 32, 64)

#: The most elements of the inputs of such a call. Chosen: 64 MB of numbers, which any machine has.
_MOST_ELEMENTS = 1 << 24

#: The most timed calls of one size, and seconds after which none is added. Chosen.
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
    """Call every signature at every size, ascending, on every replica. Returns the sizes that are left.

    A signature that shares no calls is called once, a signature that writes state never.
    A signature whose sample inputs all fail (an image decoder gets no image) stays cold and is served: the log says so.
    A size that fails where smaller ones do not, for which the device has no memory, or the model's time budget no time,
    is dropped with all larger ones; the first size stays.

    Args:
        signatures: as callers see them, if they may leave masks out.
        larger: they were called at smaller sizes before, and the log does not repeat the warnings of these.
        limits: by signature, the most rows of a call that the model takes; limits that are found here are added.

    Raises:
        OutOfMemory: the first size does not fit into the device.
        ModelUnusable: no signature can be called, whatever its inputs.
        InferenceFailed: with `larger`, the first size fails where one row does not.
        OverBudget: with `larger`, there is no time or no memory for the first size.
    """
    seen = model.signatures if signatures is None else signatures
    calls = [
        (replica, signature) for replica in replicas_of(model) for signature in seen.values() if not signature.writes
    ]
    total = sum(len(sizes) if signature.shares_calls else 1 for _, signature in calls)
    left, done, limits = list(sizes), 0, {} if limits is None else limits
    # A size that fails for one signature is dropped for all later ones; a signature that no call can help stays cold.
    unusable: list[ModelUnusable] = []
    for replica, signature in calls:
        most_rows = limits.get(signature.name) or inf
        all_rows = [rows for rows in left if rows <= most_rows] if signature.shares_calls else [1]

        def tell(more: int, what: str, before: int = done) -> None:
            report(before + more, total, what)

        try:
            warm = _warm_signature(replica, signature, all_rows, tell, limits, larger=larger)
        except ModelUnusable as reason:
            unusable.append(reason)
            _tell_cold(signature, reason, larger=larger)
            warm = all_rows
        if signature.shares_calls and len(warm) < len(all_rows):
            left = left[: len(warm)]
        done += len(sizes) if signature.shares_calls else 1
    if unusable and len(unusable) == len(calls):
        raise unusable[0]
    return left


def _warm_signature(
    model: LoadedModel,
    signature: ModelSignature,
    all_rows: Sequence[int],
    tell: Callable[[int, str], None],
    limits: dict[str, int],
    *,
    larger: bool,
) -> Sequence[int]:
    """The first of the sizes, up to one that cannot be called; see `warm_up`. `tell`: the number and text of a call."""
    warm: list[int] = []
    for rows in all_rows:
        # 1. A call of this many rows.
        tell(len(warm) + 1, f"signature {signature.name!r} with {rows} {'row' if rows == 1 else 'rows'}")
        try:
            call = _first_call(model, signature, rows)
            warm.append(rows)
            if rows == all_rows[0] and len(all_rows) > 1:
                call()  # the time of the first call says little about larger ones
        except (ServingError, OverBudget) as reason:
            # 2. It failed since the model limits the rows of a call: all sizes stay, and the limit is told.
            if isinstance(reason, InvalidRequest) and (most_rows := _limit_of_rows(model, signature, rows, warm)):
                logger.info(
                    "Signature %r takes at most %d rows in a call: batches have no more: %s",
                    signature.name, most_rows, reason,
                )  # fmt: skip
                limits[signature.name] = most_rows
                return all_rows
            # 3. Some sizes are warm: these are enough.
            if warm:
                if isinstance(reason, ServingError):
                    logger.warning("Signature %r gets fewer than %d rows a call: %s", signature.name, rows, reason)
                break
            # 4. None is warm: the load fails, or the signature is served cold.
            if isinstance(reason, OverBudget) and not larger:  # the search for an accepted row took all the time
                _tell_cold(signature, reason, larger=larger)
                return all_rows[:1]
            if _is_final(reason) or (larger and _answers(model, signature)):
                raise
            _tell_cold(signature, reason, larger=larger)
            return all_rows
    return warm


def _limit_of_rows(model: LoadedModel, signature: ModelSignature, refused: int, warm: Sequence[int]) -> int:
    """The most rows of a call, by halving; 0 if the model rejects the sample inputs, or two of them, by themselves."""

    def accepts(rows: int) -> bool:
        try:
            _first_call(model, signature, rows)
        except InvalidRequest:
            return False
        return True

    if refused == 1 or not (warm or accepts(1)):
        return 0
    most_rows = most_accepted(accepts, warm[-1] if warm else 1, refused)
    return most_rows if most_rows > 1 else 0


def _is_final(reason: Exception) -> bool:
    """Whether no other values or sizes could succeed now."""
    return isinstance(reason, (OutOfMemory, OverBudget, ModelUnusable))


def _first_call(model: LoadedModel, signature: ModelSignature, rows: int) -> Callable[[], object]:
    """Calls the signature, with larger open dimensions if small ones fail. Returns the call that succeeded.

    Raises ServingError, OverBudget: none did; it is the error of the smallest.
    """
    failure: Exception | None = None
    for open_size in _OPEN_SIZES if _has_open_sizes(signature) else _OPEN_SIZES[:1]:
        inputs = _inputs(model, signature, rows if signature.shares_calls else open_size, open_size)
        if failure is not None and sum(array.size for array in inputs.values()) > _MOST_ELEMENTS:
            break
        try:
            model.run(signature.name, inputs, ())
            return partial(model.run, signature.name, inputs, ())
        except (ServingError, OverBudget) as reason:
            if _is_final(reason):
                if failure is None:
                    raise
                break
            failure = failure or reason
    raise failure or AssertionError("at least one size is tried")


def _answers(model: LoadedModel, signature: ModelSignature) -> bool:
    """Whether a call of one row succeeds."""
    try:
        _first_call(model, signature, 1)
    except (ServingError, OverBudget):
        return False
    return True


def _has_open_sizes(signature: ModelSignature) -> bool:
    """Whether a dimension beside the rows is open."""
    own = 1 if signature.shares_calls else 0
    if any(None in inner_sizes(signature, names) for names in signature.sparse):
        return True
    return any(spec.shape is not None and None in spec.shape[own:] for spec in signature.inputs.values())


def _tell_cold(signature: ModelSignature, reason: Exception, *, larger: bool) -> None:
    if isinstance(reason, InvalidRequest):  # the model takes special values, such as tf.Examples
        level, text = logging.INFO, "is not warmed up, because it rejects the sample inputs"
    elif isinstance(reason, OverBudget):
        level, text = logging.INFO, "is not warmed up further"
    else:
        level, text = (
            logging.WARNING,
            "is served, but not warmed up: it fails on the sample inputs, maybe on all others",
        )
    logger.log(logging.DEBUG if larger else level, "Signature %r %s: %s", signature.name, text, reason)


def _inputs(model: LoadedModel, signature: ModelSignature, rows: int, open_size: int) -> dict[str, Array]:
    inputs = accepted_inputs(model, signature, rows, open_size)
    return with_left_out(signature, {name: array for name, array in inputs.items() if name not in signature.masks})


def tune(
    model: LoadedModel, sizes: Sequence[int], report: ProgressReport, budget: TimeBudget
) -> Sequence[VariantChoice]:
    """The fastest execution variants of a model, which it searches; none for a model without variants."""
    return model.tune(sizes, report, budget) if isinstance(model, TunableModel) else ()


def measure_calls(
    model: LoadedModel,
    signatures: Mapping[str, ModelSignature],
    sizes: Sequence[int],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, dict[int, float]]:
    """Seconds of a warm call, by signature and batch size, small sizes first, as far as the time allows.

    Signatures are left out if they are not batchable, run alone, or fail on the sample inputs. So are signatures with
    free inner shapes, because the costs of their calls depend on the shapes of requests.
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
                except (ServingError, OverBudget):
                    break
            if found:
                costs[signature.name] = found
    return costs


def _least_s(timed: Callable[[], float]) -> float:
    """The least seconds of several calls, since some may have been disturbed; of only two if they are long."""
    found = [timed(), timed()]
    while len(found) < _MOST_TIMED and sum(found) < _SIZE_S:
        found.append(timed())
    return min(found)


def _timed_run(model: LoadedModel, signature: ModelSignature, rows: int, clock: Callable[[], float]) -> float:
    inputs = accepted_inputs(model, signature, rows)
    begin_s = clock()
    model.run(signature.name, inputs, ())
    return clock() - begin_s
