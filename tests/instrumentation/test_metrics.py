from prometheus_client.parser import text_string_to_metric_families

from app.core.events import (
    BatchExecuted,
    BatchRejected,
    ConnectionsRejected,
    Event,
    ModelStateChanged,
    RequestFinished,
    ShadowChecked,
    VariantsChosen,
    tell_all,
)
from app.core.versions import ModelProblem, ProblemKind
from app.instrumentation.counts import Counts
from app.instrumentation.metrics import Metrics
from app.instrumentation.model_facts import ModelFacts
from app.runtime import CompiledPrograms
from tests.instrumentation.pipeline_events import computed, failed, passed_over, pipeline_ended

MODEL = {"model": "m", "version": "1", "signature": "s"}


def told(*events: Event) -> Metrics:
    counts, facts = Counts(), ModelFacts()
    metrics = Metrics(counts, facts, lambda: 0)
    tell = tell_all(counts.subscriptions, metrics.subscriptions, facts.subscriptions)
    for event in events:
        tell(event)
    return metrics


def samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return samples(metrics)[name, frozenset(labels.items())]


def test_requests_are_counted_by_protocol_and_code() -> None:
    metrics = told(*(RequestFinished("tensorflow_rest", code, "m", 1, "s", 0.002) for code in ("200", "200", "400")))
    assert value(metrics, "ferry_requests_total", protocol="tensorflow_rest", code="200", **MODEL) == 2
    assert value(metrics, "ferry_request_seconds_count", protocol="tensorflow_rest", **MODEL) == 3


def test_batches_tell_their_rows_padding_reason_and_waits() -> None:
    metrics = told(BatchExecuted("m", 1, "s", 5, 3, "full", 0.01, [0.001, 0.002], failed=1, expired=2))
    assert value(metrics, "ferry_batch_rows_sum", **MODEL) == 5
    assert value(metrics, "ferry_padded_rows_total", **MODEL) == 3
    assert value(metrics, "ferry_batches_total", reason="full", **MODEL) == 1
    assert value(metrics, "ferry_queue_seconds_count", **MODEL) == 2
    assert value(metrics, "ferry_compute_seconds_sum", **MODEL) == 0.01
    assert value(metrics, "ferry_failed_executions_total", **MODEL) == 1
    assert value(metrics, "ferry_expired_executions_total", **MODEL) == 2


def test_compiled_programs_are_shown_beside_their_limit() -> None:
    metrics = Metrics(Counts(), ModelFacts(), lambda: 0, programs=lambda: CompiledPrograms(1999, 2000))
    assert value(metrics, "ferry_compiled_programs") == 1999
    assert value(metrics, "ferry_compiled_programs_limit") == 2000
    assert "ferry_compiled_programs" not in told().render().decode()


def test_calls_whose_requests_are_run_again_are_counted_with_their_seconds() -> None:
    metrics = told(*[BatchRejected("m", 1, "s", 8, 8, 0.5)] * 2)
    assert value(metrics, "ferry_rejected_batches_total", **MODEL) == 2
    assert value(metrics, "ferry_rejected_seconds_total", **MODEL) == 1.0


def test_rejected_connections_are_counted_by_reason_from_the_start() -> None:
    metrics = told(ConnectionsRejected("full"), ConnectionsRejected("gave_way", 3))
    counted = {
        reason: value(metrics, "ferry_rejected_connections_total", reason=reason)
        for reason in ("full", "address", "gave_way")
    }
    assert counted == {"full": 1, "address": 0, "gave_way": 3}


def test_the_queue_is_read_when_asked() -> None:
    rows = 0
    metrics = Metrics(Counts(), ModelFacts(), lambda: rows)
    rows = 7
    assert value(metrics, "ferry_queue_rows") == 7


def test_models_that_do_not_work_are_there_while_they_do_not() -> None:
    problems = [
        ModelProblem("bad", 2, ProblemKind.FAILED, "it holds no graph"),
        ModelProblem("gone", None, ProblemKind.MISSING, "it has no folder"),
    ]
    metrics = Metrics(Counts(), ModelFacts(), lambda: 0, lambda: problems)
    assert value(metrics, "ferry_model_problem", model="bad", version="2", kind="failed") == 1
    assert value(metrics, "ferry_model_problem", model="gone", version="0", kind="missing") == 1
    problems.clear()
    assert not [name for name, _ in samples(metrics) if name == "ferry_model_problem"]


def test_batch_sizes_whose_variant_a_shadow_check_stopped_are_plain() -> None:
    metrics = told(
        VariantsChosen("m", 1, "s", {1: ("xla", 2.0), 8: ("frozen", 1.5)}),
        VariantsChosen("m", 1, "t", {1: ("xla", 2.0)}),
        ShadowChecked("m", 1, "s", "variant", 0.1),
        ShadowChecked("m", 1, "t", "padding", 0.1),
    )
    shown = {labels: speed_up for (name, labels), speed_up in samples(metrics).items() if "variant" in name}
    assert shown == {
        frozenset({**MODEL, "batch_size": "1", "variant": "plain"}.items()): 1.0,
        frozenset({**MODEL, "batch_size": "8", "variant": "plain"}.items()): 1.0,
        frozenset({**MODEL, "signature": "t", "batch_size": "1", "variant": "xla"}.items()): 2.0,
    }


def test_every_metric_has_a_help_text() -> None:
    metrics = told(ModelStateChanged("m", 1, "AVAILABLE"))
    families = list(text_string_to_metric_families(metrics.render().decode()))
    assert {family.name for family in families} >= {"ferry_requests", "ferry_queue_rows", "ferry_batch_rows"}
    assert all(family.documentation for family in families)


def test_times_lie_in_the_buckets_of_the_page() -> None:
    metrics = told(*(RequestFinished("p", code, "m", 1, "s", 0.002) for code in ("200", "500")))
    buckets = {bound: value(metrics, "ferry_request_seconds_bucket", le=bound, protocol="p", **MODEL)
               for bound in ("0.001", "0.0025", "30.0", "+Inf")}  # fmt: skip
    assert buckets == {"0.001": 0, "0.0025": 2, "30.0": 2, "+Inf": 2}


def test_there_is_one_sample_of_each_name_and_labels() -> None:
    metrics = told(
        *(
            BatchExecuted("m", 1, "s", rows, 8 - rows, reason, 0.01, [0.001])
            for rows in (1, 5)
            for reason in ("full", "idle")
        )
    )
    lines = [line.rsplit(" ", 1)[0] for line in metrics.render().decode().splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines))
    assert value(metrics, "ferry_padded_rows_total", **MODEL) == 20
    assert value(metrics, "ferry_batches_total", reason="full", **MODEL) == 2
    assert value(metrics, "ferry_batch_rows_bucket", le="1.0", **MODEL) == 2


def test_a_pipeline_tells_its_requests_and_where_their_time_went() -> None:
    metrics = told(
        pipeline_ended("answered", computed("small"), computed("big", rows=1)),
        pipeline_ended("answered", computed("small"), passed_over("big")),
        pipeline_ended("failed", computed("small"), failed("big")),
    )
    pipeline = {"pipeline": "p", "version": "1"}
    assert value(metrics, "ferry_pipeline_requests_total", outcome="answered", **pipeline) == 2
    assert value(metrics, "ferry_pipeline_requests_total", outcome="failed", **pipeline) == 1
    assert value(metrics, "ferry_pipeline_seconds_sum", **pipeline) == 30
    assert value(metrics, "ferry_pipeline_overhead_seconds_total", **pipeline) == 2
    big = {**pipeline, "step": "big"}
    for result in ("computed", "passed_over", "failed"):
        assert value(metrics, "ferry_pipeline_steps_total", result=result, **big) == 1
    assert value(metrics, "ferry_pipeline_step_rows_total", **big) == 1
    assert value(metrics, "ferry_pipeline_step_queue_seconds_sum", **big) == 1
    assert value(metrics, "ferry_pipeline_step_compute_seconds_sum", **pipeline, step="small") == 6
