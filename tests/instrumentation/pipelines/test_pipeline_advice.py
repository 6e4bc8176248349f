"""Each sentence on a pipeline, and that it is not said where it does not hold."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.batching_explanation import StepExplanation
from app.instrumentation.pipelines.pipeline_advice import advise_pipeline
from tests.instrumentation.pipeline_events import pipeline, step


def said(*steps: StepExplanation, **changes: Any) -> str:
    return " | ".join(advise_pipeline(pipeline(*steps, **changes)))


def test_steps_that_only_wait_for_each_other_are_better_fused() -> None:
    assert said(step("a"), step("b", "a", wait_share=0.2), step("c", "b", wait_share=0.1)) == (
        "fuse the steps 'a', 'b' and 'c' into one SavedModel: the same rows take them, nobody else asks their models, "
        "and their batches are equally large (8 and 8 and 8 rows). That would save 31% of the time of a request (3.13 "
        "ms of 10 ms), in which it waits between them."
    )


def test_what_the_pipeline_itself_takes_between_steps_counts_as_saved() -> None:
    assert "would save 20%" in said(step("a"), step("b", "a"), overhead_share=0.4)


def test_fusing_what_saves_little_is_not_worth_an_export() -> None:
    assert said(step("a"), step("b", "a", wait_share=0.05)).startswith("nothing to change: a request takes 10 ms")


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (
            {},
            {"condition": ["a"], "row_share": 0.25, "rows": 100},
            "'b' has 'when' and computes 25% of the rows; fused it would compute all",
        ),
        ({}, {"forms": ["each"]}, "'b' has 'each': each element of a row is a row for it, so its batches are larger"),
        ({"forms": ["fold"]}, {}, "'a' has 'fold': it computes trees, in many calls"),
        ({}, {"forms": ["optional"]}, "'b' has 'optional': it may fail without the request"),
        ({}, {"rows": 40, "computed": 10}, "'b' computes 40 rows of the 400 of 'a'"),
        (
            {"elsewhere_share": 0.3},
            {},
            "30% of the requests to the model of 'a' come from elsewhere, and share its calls and its memory",
        ),
        ({}, {"elsewhere_share": 0.3}, "30% of the requests to the model of 'b' come from elsewhere"),
        (
            {"rows_per_call": 32.0},
            {},
            "each has batches of its own size: 32 rows in those of 'a', 8 in those of 'b'",
        ),
    ],
)
def test_steps_that_have_a_reason_for_calls_of_their_own_are_better_not_fused(
    before: dict[str, Any], after: dict[str, Any], reason: str
) -> None:
    text = said(step("a", **before), step("b", "a", wait_share=0.3, **after))
    assert "fuse the steps" not in text
    assert "requests wait 3.1 ms (31% of their time) between step 'b' and what it needs. Do not fuse" in text
    assert reason in text


def test_a_step_that_joins_others_stays_apart_and_of_two_side_by_side_one_is_fused() -> None:
    joined = said(step("a"), step("b"), step("c", "a", "b", wait_share=0.3))
    assert "'c' needs 'a' and 'b', which run side by side or take different rows" in joined
    beside = said(step("a"), step("b", "a", wait_share=0.3), step("c", "a", wait_share=0.3))
    assert "fuse the steps 'a' and 'b'" in beside
    assert "'c'" not in beside


def test_steps_behind_one_gate_are_fused_with_each_other() -> None:
    gated = {"rows": 100, "row_share": 0.25}
    text = said(step("a"), step("b", "a", condition=["a"], **gated), step("c", "b", wait_share=0.3, **gated))
    assert "fuse the steps 'b' and 'c'" in text


def test_a_gate_that_all_rows_pass_wastes_what_it_reads() -> None:
    assert said(step("small"), step("big", "small", condition=["small"])) == (
        "100.0% of the rows pass the 'when' of step 'big', so it decides nothing, and 'small', computed for 20% of the "
        "time, may be of no use. Make the condition stricter, or leave it out."
    )
    assert "so it decides nothing. Make" in said(step("big", condition=[])), "it reads an input"


def test_rows_that_an_earlier_gate_kept_back_do_not_count() -> None:
    early = step("early", "small", condition=["small"], row_share=0.5, rows=200)
    late = step("late", "early", condition=["early"], row_share=0.5, rows=200)
    text = said(step("small"), early, late)
    assert "'when' of step 'late', so it decides nothing" in text
    assert "'when' of step 'early'" not in text


def test_a_gate_that_no_row_passes_is_told() -> None:
    never = step("big", "small", condition=["small"], computed=0, passed_over=100, rows=0, row_share=0.0)
    assert said(step("small"), never).startswith("no row of 100 requests has passed the 'when' of step 'big'")


def test_one_step_that_takes_nearly_all_of_the_time_is_where_to_look() -> None:
    assert said(step("a", compute_share=0.93)) == (
        "step 'a' is computed for 93% of the time, so nothing else matters: /v1/models/a-model/batching says what "
        "would help."
    )
    assert "wait at step 'a' for 60% of their time (6 ms): /v1/models/a-model/batching says why" in said(
        step("a", wait_share=0.6)
    )


def test_few_requests_say_little_and_a_missing_model_says_all() -> None:
    few = said(step("a", compute_share=0.95), requests={"answered": 3})
    assert few == "requests answered so far: 3; ask again after some traffic."
    assert said(missing="waits for big (gone)") == "it answers no requests: it waits for big (gone)."


def test_an_optional_step_that_mostly_fails_is_told() -> None:
    slow = step("slow", forms=["optional"], computed=2, failed=260)
    told = "'slow' failed 260 of 262 times: its timeout_ms may be shorter than a call of its model."
    assert told in said(step("a"), slow)
    assert "timeout_ms" not in said(step("slow", forms=["optional"], computed=200, failed=100))
    assert "timeout_ms" not in said(step("slow", forms=["optional"], computed=1, failed=9)), "few requests say little"
    assert "timeout_ms" not in said(step("slow", computed=2, failed=260)), "requests tell that themselves"
