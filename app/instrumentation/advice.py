"""Advice that would make a model's batches better, in plain sentences. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from math import ceil

from app.core.batching_explanation import (
    NO_ROWS,
    NOT_PROVEN,
    ROWS_LOST,
    BatchingOptionsDocument,
    CostCurveDocument,
    DurationsDocument,
    SignatureExplanation,
)

# All numbers here are chosen.

#: Fewer calls say little.
_LEAST_CALLS = 20

#: The average number of requests in a call below which batches are rare.
_ALONE = 1.5

#: Requests that wait this many times as long as their calls take are queued.
_LONG = 3.0

#: Calls below this many milliseconds are made on the event loop, which then is the bottleneck (max_inline_ms).
_QUICK_MS = 1.0

#: The shares from which on a figure is worth a sentence.
_MANY, _MUCH, _SOME = 0.5, 0.25, 0.01

#: Larger batches are worth it if a row becomes this many times as cheap, other sizes if a row costs this share more.
_WORTH, _DEAR = 1.1, 0.1

#: The page that says which line of a model to change.
_PAGE = "docs/running-alone.md"

_LATE = frozenset({"504", "DEADLINE_EXCEEDED"})
_REJECTED = frozenset({"503", "UNAVAILABLE"})


def advise(
    signature: SignatureExplanation,
    options: BatchingOptionsDocument,
    sizes: Sequence[int],
    *,
    draws: bool = False,
    devices: Sequence[str] = (),
) -> list[str]:
    """The advice for a signature: at least one sentence.

    Args:
        sizes: the row counts that the model is called with.
        draws: whether the signature draws random numbers.
        devices: the devices of the model.
    """
    if signature.calls < _LEAST_CALLS or signature.wait_ms is None or signature.compute_ms is None:
        few = f"calls counted so far: {signature.calls}; ask again after some traffic."
        return [*_shadow_checks(signature), *advise_on_rows(signature, draws=draws), *advise_on_answers(signature), few]
    wait, compute = signature.wait_ms, signature.compute_ms
    found = [
        *_shadow_checks(signature),
        *(advise_on_rows(signature, draws=draws) or _why_alone(signature, options, sizes, wait, compute)),
        *_fullness(signature, options, sizes),
        *_saturation(signature, options, sizes, wait, compute, devices),
        *_row_padding(signature),
        *_shape_padding(signature),
        *_target(signature, options),
        *advise_on_answers(signature),
    ]
    return found or [
        f"nothing to change: calls hold {signature.rows_per_call:.3g} rows, requests wait {wait.mean:.3g} ms, "
        f"and calls take {compute.mean:.3g} ms."
    ]


def _shadow_checks(signature: SignatureExplanation) -> Iterator[str]:
    for guilty in ("variant", "padding", "sharing"):
        if signature.shadow_checks.get(guilty):
            yield (
                f"a check of answers found that its {guilty} changed an answer, so it is not used any more: report "
                "this model, or turn that off by a setting."
            )


def advise_on_rows(signature: SignatureExplanation, *, draws: bool) -> list[str]:
    """The reason why rows do not share calls, and what would help; empty if they may. It needs no traffic."""
    if signature.shapes.explanation == ROWS_LOST:
        return [f"{ROWS_LOST}. Export the model so that no output mixes rows ({_PAGE})."]
    if not signature.alone:
        return []
    return [f"each request runs alone and unpadded, as {signature.alone}. {_help(signature.alone, draws=draws)}"]


def _help(alone: str, *, draws: bool) -> str:
    if NO_ROWS in alone:
        return f"Export what lacks one with the shape [None, ...] to share calls; {_PAGE} shows how."
    if not alone.startswith(NOT_PROVEN):
        return f"{_PAGE} shows what to change."
    hope = (
        "Requests cannot prove it, as the signature draws random numbers: change"
        if draws
        else "Requests of several rows or callers prove it while they come; or change"
    )
    return (
        f"{hope} the model as {_PAGE} shows; or, if you know that it holds, set row_independence to assume for this "
        "model."
    )


def _why_alone(
    signature: SignatureExplanation,
    options: BatchingOptionsDocument,
    sizes: Sequence[int],
    wait: DurationsDocument,
    compute: DurationsDocument,
) -> Iterator[str]:
    """The reason why requests run alone although their rows may share calls."""
    if sizes[-1] == 1:
        yield "each request runs alone, as batches have one row at most: set batching on, or max_batch_size higher."
    elif signature.requests_per_call >= _ALONE:
        return
    elif _share(signature, "delay") >= _MANY:
        yield (
            f"requests wait up to {options.max_batch_delay_ms:g} ms for other requests and few come "
            f"(requests in a call: {signature.requests_per_call:.2g}): set max_batch_delay_ms to 0."
        )
    elif _only_equal_share(signature):
        more = " or more" if signature.costs_left_out else ""
        yield (
            f"requests of {_listed_shapes(signature)}{more} different shapes came and only equal ones share calls "
            f"({signature.shapes.explanation}): send few shapes, or see pad_shapes and pad_values."
        )
    elif wait.mean <= compute.mean and _share(signature, "full") < _MANY:
        quick = ", and calls are too quick to wait for other requests" if compute.mean < _QUICK_MS else ""
        yield (
            f"requests in a call: {signature.requests_per_call:.2g} on average, as hardly two come at a time{quick}. "
            "Nothing is wrong; more clients at a time or more rows in a request fill batches."
        )


def _fullness(signature: SignatureExplanation, options: BatchingOptionsDocument, sizes: Sequence[int]) -> Iterator[str]:
    """The limit that keeps batches small which would be larger."""
    if _share(signature, "full") < _MANY or not signature.batched:
        return
    full, largest, curve = _share(signature, "full"), max(1, signature.batch_sizes[-1].size), _curve(signature)
    gain = f", where a row costs {_gain(curve, largest):.2g} times less" if curve else ""
    target = curve.efficient_rows if curve else sizes[-1]
    may_grow = largest < target and (curve is None or _gain(curve, largest) >= _WORTH)
    if 0 < options.max_batch_size < sizes[-1] and may_grow:
        yield (
            f"{full:.0%} of the batches were full at max_batch_size {options.max_batch_size}: raise it to "
            f"{target}{gain}."
        )
    elif options.target_p99_ms and may_grow:
        yield (
            f"{full:.0%} of the batches were full at {largest} rows, as target_p99_ms {options.target_p99_ms:g} allows "
            f"no more: a higher one lets up to {target} rows share a call{gain}."
        )
    elif largest == sizes[-1] > 1 and (curve is None or _still_gains(curve)):
        yield (
            f"{full:.0%} of the batches were full at {largest} rows, the largest that the model was warmed up with, "
            "and larger ones may be cheaper still: try a higher setting max_batch_size."
        )


def _saturation(  # noqa: PLR0917 - all that is known of it
    signature: SignatureExplanation,
    options: BatchingOptionsDocument,
    sizes: Sequence[int],
    wait: DurationsDocument,
    compute: DurationsDocument,
    devices: Sequence[str],
) -> Iterator[str]:
    if wait.mean <= _LONG * compute.mean or (options.max_batch_delay_ms and _share(signature, "delay") >= _MANY):
        return
    if signature.alone or not signature.batched:
        return  # `advise_on_rows` says what would help
    ratio = f"requests wait {wait.mean / compute.mean:.2g} times as long as their calls take"
    if compute.mean < _QUICK_MS:
        yield (
            f"{ratio}, and calls are quick: what is short is the CPU that reads and writes requests. Add servers, or "
            "use the setting frontends."
        )
    elif signature.most_rows < sizes[-1] and signature.most_rows == signature.batch_sizes[-1].size:
        yield (
            f"{ratio}: calls have {signature.most_rows} rows at most so far, since there was no time yet to try more; "
            "larger ones are tried while no requests come (load_budget_s)."
        )
    else:
        names = sorted(set(devices))
        which = f"all {len(names)} devices ({', '.join(names)}) are" if len(names) > 1 else "the device is"
        yield f"{ratio}: {which} saturated, by this model or others. Add GPUs (the setting replicas), or servers."


def _row_padding(signature: SignatureExplanation) -> Iterator[str]:
    if signature.padding.row_share < _MUCH:
        return
    share = f"{signature.padding.row_share:.0%} of the rows that are computed are padding"
    curve = _curve(signature)
    if curve is not None and _padding_cost(signature, curve) < _DEAR:
        yield f"{share}, which costs next to nothing here: a call with fewer rows takes about as long."
        return
    worst = max(signature.batch_sizes, key=lambda each: each.size * each.calls - each.rows)
    usual = min(ceil(worst.rows / worst.calls), worst.size - 1)
    yield f"{share}: add sizes to the setting batch_sizes that are nearer to what comes, such as {usual}."


def _shape_padding(signature: SignatureExplanation) -> Iterator[str]:
    padding = signature.padding
    rest = 1 - padding.row_share
    inner = 1 - (1 - padding.compute_share) / rest if rest else 0.0
    if signature.shapes.shared and inner >= _MUCH:
        yield (
            f"{inner:.0%} of what real rows cost is padding of shorter inputs to longer ones of their batch, as that "
            "saves calls. If shape_buckets names buckets, name more of them."
        )


def _target(signature: SignatureExplanation, options: BatchingOptionsDocument) -> Iterator[str]:
    """Why target_p99_ms cannot be kept: a request may have to wait for the call before its own."""
    curve = _curve(signature)
    if curve is not None and 0 < options.target_p99_ms < 2 * curve.calls[0].ms:
        yield (
            f"target_p99_ms {options.target_p99_ms:g} cannot be kept: a call with {curve.calls[0].rows} row takes "
            f"{curve.calls[0].ms:.3g} ms, and a request may wait for one before its own."
        )


def advise_on_answers(signature: SignatureExplanation) -> Iterator[str]:
    """The shares of requests that were late or rejected."""
    answers = sum(signature.answers.values())
    late, rejected = (
        sum(count for code, count in signature.answers.items() if code in codes) / max(answers, 1)
        for codes in (_LATE, _REJECTED)
    )
    if late >= _SOME:
        times = ""
        if signature.wait_ms is not None and signature.compute_ms is not None:
            needed_ms = signature.wait_ms.p99 + signature.compute_ms.p99
            times = f"; those that were computed took up to about {needed_ms:.3g} ms (p99)"
        yield (
            f"{late:.0%} of the requests ran out of time{times}: give them more (X-Request-Timeout-Ms, the deadline in "
            "gRPC, the setting request_timeout_ms), or add servers."
        )
    if rejected >= _SOME:
        yield (
            f"{rejected:.0%} of the requests were rejected, as they would have come too late or found the queue full: "
            "add servers, or send less."
        )


def _share(signature: SignatureExplanation, reason: str) -> float:
    return signature.closed_by.get(reason, 0) / signature.calls


def _only_equal_share(signature: SignatureExplanation) -> bool:
    """Whether requests came in several shapes, and only equal ones share calls."""
    shapes = signature.shapes
    return bool(shapes.free) and not shapes.shared and (_listed_shapes(signature) > 1 or signature.costs_left_out > 0)


def _listed_shapes(signature: SignatureExplanation) -> int:
    """The number of shapes with a cost curve; a shape has one for each set of outputs."""
    return len({tuple(map(tuple, each.shape)) for each in signature.costs})


def _curve(signature: SignatureExplanation) -> CostCurveDocument | None:
    """The cost curve, if all calls have the same one and it was measured; else None."""
    costs = signature.costs
    return costs[0] if len(costs) == 1 and not signature.costs_left_out and costs[0].calls[0].ms else None


def _still_gains(curve: CostCurveDocument) -> bool:
    """Whether a row gets cheaper up to the largest size."""
    a_row = [each.ms / each.rows for each in curve.calls[-2:]]
    return len(a_row) < 2 or a_row[0] >= _WORTH * a_row[1]


def _gain(curve: CostCurveDocument, rows: int) -> float:
    """The cost of a row in a call of `rows`, over its cost in a call of the efficient size."""
    return _call_ms(curve, rows) / rows / (_call_ms(curve, curve.efficient_rows) / curve.efficient_rows)


def _padding_cost(signature: SignatureExplanation, curve: CostCurveDocument) -> float:
    """The share of the calls' time that rows of padding take."""
    whole_ms = sum(each.calls * _call_ms(curve, each.size) for each in signature.batch_sizes)
    own_ms = sum(each.calls * _call_ms(curve, each.rows / each.calls) for each in signature.batch_sizes)
    return 1 - own_ms / whole_ms if whole_ms else 0.0


def _call_ms(curve: CostCurveDocument, rows: float) -> float:
    """The milliseconds of a call, interpolated between two sizes of the curve."""
    sizes = [each.rows for each in curve.calls]
    place = bisect_left(sizes, rows)
    if not place or place == len(sizes):
        return curve.calls[min(place, len(sizes) - 1)].ms
    before, after = curve.calls[place - 1], curve.calls[place]
    return before.ms + (after.ms - before.ms) * (rows - before.rows) / (after.rows - before.rows)
