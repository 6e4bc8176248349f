"""What is counted of requests to pipelines."""

from __future__ import annotations

from app.instrumentation.pipeline_counts import PipelineCounts
from tests.instrumentation.pipeline_events import computed, failed, passed_over, pipeline_ended


def test_steps_are_counted_by_what_became_of_them() -> None:
    counts = PipelineCounts()
    counts.add(pipeline_ended("answered", computed("small"), computed("big", rows=1, batch_rows=3)))
    counts.add(pipeline_ended("answered", computed("small"), passed_over("big")))
    counts.add(pipeline_ended("failed", computed("small"), failed("big")))
    small, big = counts.steps["small"], counts.steps["big"]
    assert (small.computed, small.passed_over, small.failed, small.rows, small.of_rows) == (3, 0, 0, 12, 12)
    assert (big.computed, big.passed_over, big.failed, big.rows, big.of_rows) == (1, 1, 1, 1, 12)
    assert (big.batch_rows, big.queue_s.total, big.compute_s.total) == (3, 1, 2)
    assert counts.outcomes == {"answered": 2, "failed": 1}
    assert (counts.seconds.count, counts.overhead_s) == (3, 2)


def test_rejected_requests_took_no_time() -> None:
    counts = PipelineCounts()
    counts.add(pipeline_ended("rejected"))
    assert (counts.outcomes["rejected"], counts.seconds.count) == (1, 0)


def test_what_came_after_a_copy_is_the_difference_to_it() -> None:
    counts = PipelineCounts()
    counts.add(pipeline_ended("answered", computed("small")))
    before = counts - PipelineCounts()
    counts.add(pipeline_ended("failed", computed("small"), failed("big")))
    later = counts - before
    assert later.outcomes == {"failed": 1}
    assert (later.steps["small"].computed, later.steps["big"].failed, later.seconds.count) == (1, 1, 1)
    assert before.steps["small"].computed == 1, "the copy stays as it was"
