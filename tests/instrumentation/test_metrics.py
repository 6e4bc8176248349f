from prometheus_client.parser import text_string_to_metric_families

from app.events import BatchExecuted, ModelStateChanged, RequestFinished
from app.instrumentation.metrics import Metrics

MODEL = {"model": "m", "version": "1", "signature": "s"}


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
    metrics = Metrics(lambda: 0)
    for code in ("200", "200", "400"):
        metrics(RequestFinished("tensorflow_rest", code, "m", 1, "s", 0.002))
    assert value(metrics, "ferry_requests_total", protocol="tensorflow_rest", code="200", **MODEL) == 2
    assert value(metrics, "ferry_request_seconds_count", protocol="tensorflow_rest", **MODEL) == 3


def test_batches_tell_their_rows_padding_reason_and_waits() -> None:
    metrics = Metrics(lambda: 0)
    metrics(BatchExecuted("m", 1, "s", 5, 3, "full", 0.01, [0.001, 0.002], failed=1))
    assert value(metrics, "ferry_batch_rows_sum", **MODEL) == 5
    assert value(metrics, "ferry_padded_rows_total", **MODEL) == 3
    assert value(metrics, "ferry_batches_total", reason="full", **MODEL) == 1
    assert value(metrics, "ferry_queue_seconds_count", **MODEL) == 2
    assert value(metrics, "ferry_compute_seconds_sum", **MODEL) == 0.01
    assert value(metrics, "ferry_failed_executions_total", **MODEL) == 1


def test_the_queue_is_read_when_asked() -> None:
    rows = 0
    metrics = Metrics(lambda: rows)
    rows = 7
    assert value(metrics, "ferry_queue_rows") == 7


def test_every_metric_has_a_help_text() -> None:
    metrics = Metrics(lambda: 0)
    metrics(ModelStateChanged("m", 1, "AVAILABLE"))
    families = list(text_string_to_metric_families(metrics.render().decode()))
    assert {family.name for family in families} >= {"ferry_requests", "ferry_queue_rows", "ferry_batch_rows"}
    assert all(family.documentation for family in families)
