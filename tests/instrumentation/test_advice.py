"""Each sentence, and that it is not said where it does not hold."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.batching_explanation import (
    NO_ROWS,
    NOT_PROVEN,
    ROWS_LOST,
    BatchingOptionsDocument,
    BatchSizeDocument,
    CallCostDocument,
    CostCurveDocument,
    DurationsDocument,
    MixedShapesDocument,
    PaddingDocument,
    SignatureExplanation,
)
from app.instrumentation.advice import advise

SIZES = (1, 2, 4, 8)
PAGE = "docs/running-alone.md"
SAME = MixedShapesDocument(free=False, shared=False, explanation="all requests have the same inner shapes")
MIXED = MixedShapesDocument(free=True, shared=True, explanation="padded: x[?,d1]")
APART = MixedShapesDocument(free=True, shared=False, explanation="padding changes the model's answers")
LOST = MixedShapesDocument(free=False, shared=False, explanation=ROWS_LOST)
NO_PADDING = PaddingDocument(rows=0, row_share=0.0, compute_share=0.0)


def options(**changes: Any) -> BatchingOptionsDocument:
    return BatchingOptionsDocument(
        **{
            "max_batch_size": 0, "max_batch_delay_ms": 0, "target_p99_ms": 0, "weight": 0,
            **changes,
        }
    )  # fmt: skip


def ms(mean: float) -> DurationsDocument:
    return DurationsDocument(mean=mean, p50=mean, p90=2 * mean, p99=3 * mean)


def costs(*milliseconds: float, efficient_rows: int = 8) -> CostCurveDocument:
    calls = [
        CallCostDocument(rows=rows, ms=each, measured=True) for rows, each in zip(SIZES, milliseconds, strict=True)
    ]
    return CostCurveDocument(outputs=(), shape=[[2]], bucket=False, efficient_rows=efficient_rows, calls=calls)


#: A row is the cheaper the more there are in a call; at 8 an eighth.
FLAT = costs(10, 10, 10, 10)
#: No row is cheaper in a larger batch, and from 2 rows on each is dearer.
STEEP = costs(10, 25, 50, 100, efficient_rows=1)
#: A row costs the same in a call of any size.
EVEN = costs(10, 20, 40, 80)
#: For another shape, and for other outputs.
WIDE = FLAT.model_copy(update={"shape": [[3]]})
FOR_Y = FLAT.model_copy(update={"outputs": ["y"]})


def signature(**changes: Any) -> SignatureExplanation:
    """100 calls that hold 4 rows of 4 requests each, at their best."""
    return SignatureExplanation(
        **{
            "signature": "s", "batched": True, "calls": 100, "requests": 400, "rows": 400, "rows_per_call": 4,
            "requests_per_call": 4, "batch_sizes": [BatchSizeDocument(size=4, calls=100, rows=400)],
            "closed_by": {"idle": 100}, "wait_ms": ms(5), "compute_ms": ms(10), "padding": NO_PADDING,
            "speed_up": None, "answers": {"200": 400}, "costs": [FLAT], "costs_left_out": 0, "variants": [],
            "shapes": SAME, **changes,
        }
    )  # fmt: skip


def alone(**changes: Any) -> SignatureExplanation:
    """100 calls of one row."""
    sizes = [BatchSizeDocument(size=1, calls=100, rows=100)]
    one = {"requests": 100, "rows": 100, "rows_per_call": 1, "requests_per_call": 1, "batch_sizes": sizes}
    return signature(**{**one, "wait_ms": ms(0.1), **changes})


def full(size: int, **changes: Any) -> SignatureExplanation:
    sizes = [BatchSizeDocument(size=size, calls=100, rows=100 * size)]
    return signature(closed_by={"full": 60, "idle": 40}, batch_sizes=sizes, **changes)


def padded(row_share: float, compute_share: float, **changes: Any) -> SignatureExplanation:
    padding = PaddingDocument(rows=100, row_share=row_share, compute_share=compute_share)
    sizes = [BatchSizeDocument(size=4, calls=90, rows=360), BatchSizeDocument(size=8, calls=100, rows=470)]
    return signature(padding=padding, batch_sizes=sizes, **changes)


GOOD = ["nothing to change: calls hold 4 rows, requests wait 5 ms, and calls take 10 ms."]


def test_where_all_is_well_nothing_is_to_be_changed() -> None:
    assert advise(signature(), options(), SIZES) == GOOD


@pytest.mark.parametrize("calls", [0, 19])
def test_few_calls_say_little(calls: int) -> None:
    few = alone(calls=calls, wait_ms=None if not calls else ms(1))
    assert advise(few, options(), SIZES) == [f"calls counted so far: {calls}; ask again after some traffic."]


_SCALAR = f"output 'y' has the shape [], {NO_ROWS}"
_MIXES = "output 'y': Max 'm' runs over the rows, axis 0 of its input"
_OPEN = f"{NOT_PROVEN}: by its graph: PyFunc 'f': there is no rule for this operation"
_ASSUME = "or, if you know that it holds, set row_independence to assume for this model."


@pytest.mark.parametrize("calls", [1, 100])
@pytest.mark.parametrize(
    ("why", "draws", "rest"),
    [
        (_SCALAR, False, f"Export what lacks one with the shape [None, ...] to share calls; {PAGE} shows how."),
        (_MIXES, False, f"{PAGE} shows what to change."),
        ("each call writes state (AssignVariableOp)", True, f"{PAGE} shows what to change."),
        (_OPEN, False, f"Requests of several rows or callers prove it while they come; or change the model as {PAGE} "),
        (_OPEN, True, "Requests cannot prove it, as the signature draws random numbers: change the model as "),
    ],
)
def test_why_requests_run_alone_is_told_at_once(calls: int, why: str, draws: bool, rest: str) -> None:
    found = advise(alone(calls=calls, batched=False, alone=why), options(), SIZES, draws=draws)
    assert found[0].startswith(f"each request runs alone and unpadded, as {why}. {rest}")
    assert found[0].endswith(_ASSUME) == why.startswith(NOT_PROVEN), "nothing is assumed against a proof"


def test_what_a_shadow_check_found_is_told_however_few_calls_there_were() -> None:
    found, few = advise(signature(calls=1, shadow_checks={"variant": 1}), options(), SIZES)
    assert found.startswith("a check of answers found that its variant changed an answer")
    assert "ask again" in few


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ((), "the device is saturated"),
        (("GPU:0",), "the device is saturated"),
        (("GPU:0", "GPU:0"), "the device is saturated"),
        (("GPU:1", "GPU:0"), "all 2 devices (GPU:0, GPU:1) are saturated"),
    ],
)
def test_all_devices_of_a_model_are_named_where_requests_wait_for_them(devices: tuple[str, ...], said: str) -> None:
    (sentence,) = advise(signature(wait_ms=ms(50)), options(), SIZES, devices=devices)
    assert said in sentence


@pytest.mark.parametrize(
    ("found", "given", "sizes", "sentence"),
    [
        (alone(batched=False, shapes=LOST), {}, SIZES, f"{ROWS_LOST}. Export the model so that no output mixes rows ("),
        (alone(), {}, (1,), "each request runs alone, as batches have one row at most: set batching on"),
        (
            alone(closed_by={"delay": 90, "idle": 10}, wait_ms=ms(40)),
            {"max_batch_delay_ms": 40},
            SIZES,
            "requests wait up to 40 ms for other requests and few come (requests in a call: 1): set max_batch_delay",
        ),
        (
            alone(shapes=APART, costs=[FLAT, WIDE], costs_left_out=3),
            {},
            SIZES,
            "requests of 2 or more different shapes came and only equal ones share calls (padding changes "
            "the model's answers)",
        ),
        (
            alone(),
            {},
            SIZES,
            "requests in a call: 1 on average, as hardly two come at a time. Nothing is wrong; more clients",
        ),
        (
            alone(compute_ms=ms(0.2), costs=[]),
            {},
            SIZES,
            "requests in a call: 1 on average, as hardly two come at a time, and calls are too quick to wait for other "
            "requests. Nothing",
        ),
        (
            full(2),
            {"max_batch_size": 2},
            SIZES,
            "60% of the batches were full at max_batch_size 2: raise it to 8, where a row costs 4 times less.",
        ),
        (
            full(2, costs=[]),
            {"max_batch_size": 2},
            SIZES,
            "60% of the batches were full at max_batch_size 2: raise it to 8.",
        ),
        (
            full(4),
            {"target_p99_ms": 25},
            SIZES,
            "60% of the batches were full at 4 rows, as target_p99_ms 25 allows no more: a higher one lets up to 8 "
            "rows share a call, where a row costs 2 times less.",
        ),
        (
            full(1, rows_per_call=1, requests_per_call=1),
            {"max_batch_size": 1},
            SIZES,
            "60% of the batches were full at max_batch_size 1: raise it to 8, where a row costs 8 times less.",
        ),
        (
            full(8),
            {},
            SIZES,
            "60% of the batches were full at 8 rows, the largest that the model was warmed up with, and larger ones "
            "may be cheaper still: try a higher setting max_batch_size.",
        ),
        (
            signature(wait_ms=ms(50)),
            {},
            SIZES,
            "requests wait 5 times as long as their calls take: the device is saturated, by this model or others. Add "
            "GPUs (the setting replicas), or servers.",
        ),
        (
            signature(wait_ms=ms(2), compute_ms=ms(0.5)),
            {},
            SIZES,
            "requests wait 4 times as long as their calls take, and calls are quick: what is short is the CPU",
        ),
        (
            padded(0.4, 0.4, costs=[costs(10, 20, 40, 80)]),
            {},
            SIZES,
            "40% of the rows that are computed are padding: add sizes to the setting batch_sizes that are nearer to "
            "what comes, such as 5.",
        ),
        (
            signature(
                padding=PaddingDocument(rows=80, row_share=0.4, compute_share=0.4),
                batch_sizes=[BatchSizeDocument(size=2, calls=100, rows=120)],
                costs=[EVEN],
            ),
            {},
            (2, 8),
            "40% of the rows that are computed are padding: add sizes to the setting batch_sizes that are nearer to "
            "what comes, such as 1.",
        ),
        (padded(0.4, 0.4, costs=[]), {}, SIZES, "40% of the rows that are computed are padding: add sizes"),
        (
            padded(0.4, 0.4),
            {},
            SIZES,
            "40% of the rows that are computed are padding, which costs next to nothing here",
        ),
        (
            padded(0.2, 0.6, shapes=MIXED),
            {},
            SIZES,
            "50% of what real rows cost is padding of shorter inputs to longer ones of their batch, as that saves "
            "calls. If shape_buckets names buckets, name more of them.",
        ),
        (
            signature(),
            {"target_p99_ms": 15},
            SIZES,
            "target_p99_ms 15 cannot be kept: a call with 1 row takes 10 ms, and a request may wait for one before its",
        ),
        (
            signature(answers={"200": 380, "504": 10, "DEADLINE_EXCEEDED": 10}),
            {},
            SIZES,
            "5% of the requests ran out of time; those that were computed took up to about 45 ms (p99): give them more",
        ),
        (
            signature(answers={"200": 380, "503": 12, "UNAVAILABLE": 8}),
            {},
            SIZES,
            "5% of the requests were rejected, as they would have come too late or found the queue full: add servers",
        ),
    ],
)
def test_what_would_help(
    found: SignatureExplanation, given: dict[str, Any], sizes: tuple[int, ...], sentence: str
) -> None:
    (said,) = advise(found, options(**given), sizes)
    assert said.startswith(sentence)
    assert said.endswith(".")


@pytest.mark.parametrize(
    ("found", "given"),
    [
        (full(2, costs=[STEEP]), {"max_batch_size": 2}),
        (full(4, costs=[STEEP]), {"target_p99_ms": 100}),
        (full(1, costs=[STEEP]), {}),
        (full(4, costs=[STEEP]), {"max_batch_size": 4}),
        (full(8, costs=[EVEN]), {}),
        (signature(wait_ms=ms(0), compute_ms=ms(0), costs=[costs(0, 0, 0, 0)]), {"max_batch_size": 4}),
        (full(4, compute_ms=ms(0), wait_ms=ms(0), costs=[costs(0, 0, 0, 0)]), {}),
        (alone(shapes=APART, costs=[FLAT, FOR_Y], wait_ms=ms(15)), {}),
        (signature(wait_ms=ms(29)), {}),
        (signature(wait_ms=ms(40), closed_by={"delay": 100}), {"max_batch_delay_ms": 40}),
        (padded(0.2, 0.2), {}),
        (padded(0.2, 0.6, shapes=SAME), {}),
        (signature(shapes=APART, costs=[FLAT, FLAT]), {}),
        (signature(), {"target_p99_ms": 20}),
        (signature(answers={"200": 397, "504": 3}), {}),
        (signature(answers={}), {}),
    ],
)
def test_and_not_where_it_would_not(found: SignatureExplanation, given: dict[str, Any]) -> None:
    assert advise(found, options(**given), SIZES)[0].startswith("nothing to change: ")


def test_requests_that_were_all_rejected_are_spoken_of_too() -> None:
    nothing = signature(calls=0, requests=0, wait_ms=None, compute_ms=None, answers={"504": 5})
    first, second = advise(nothing, options(), SIZES)
    assert first.startswith("100% of the requests ran out of time: give them more")
    assert second.startswith("calls counted so far: 0;")


def test_several_things_may_be_said() -> None:
    found = signature(wait_ms=ms(50), answers={"504": 1})
    assert len(advise(found, options(target_p99_ms=5), SIZES)) == 3
