from grpc import StatusCode
from prometheus_client.parser import text_string_to_metric_families

from app.core.events import BatchExecuted, Event, ModelStateChanged, RequestFinished, tell_all
from app.instrumentation.counts import Counts
from app.instrumentation.tensorflow_metrics import TensorFlowMetrics
from app.transports.http.replies import CODES
from app.transports.rendered_pages import whole

PREFIX = ":tensorflow:serving:"


def finished(code: str, model: str = "m", signature: str = "s", protocol: str = "tensorflow_rest") -> RequestFinished:
    return RequestFinished(protocol, code, model, 1, signature, 0.002)


def page(*events: Event) -> str:
    counts = Counts()
    for event in events:
        tell_all(counts.subscriptions)(event)
    return whole(TensorFlowMetrics(counts).render()).decode()


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(text)  # it calls every counter `..._total`, whatever the page says
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_calls_are_counted_by_model_and_tensorflows_status() -> None:
    found = samples(page(finished("200"), finished("200"), finished("504"), finished("OK", protocol="tensorflow_grpc")))
    assert found[PREFIX + "request_count_total", (("model_name", "m"), ("status", "OK"))] == 3
    assert found[PREFIX + "request_count_total", (("model_name", "m"), ("status", "DEADLINE_EXCEEDED"))] == 1
    assert found[PREFIX + "request_latency_count", (("entrypoint", "REST"), ("model_name", "m"))] == 3
    assert found[PREFIX + "request_latency_count", (("entrypoint", "GRPC"), ("model_name", "m"))] == 1
    assert found[PREFIX + "request_latency_sum", (("entrypoint", "GRPC"), ("model_name", "m"))] == 2000


def test_every_status_of_http_is_one_of_tensorflow() -> None:
    text = page(*[finished(str(status)) for status in {*CODES.values(), 200, 499}])
    found = {dict(labels)["status"] for name, labels in samples(text) if name == PREFIX + "request_count_total"}
    assert found <= {code.name for code in StatusCode}


def test_what_computes_nothing_is_not_counted() -> None:
    text = page(finished("200", signature=""), ModelStateChanged("m", 1, "START"))
    assert not any(name.startswith(PREFIX) for name, _ in samples(text))


def test_batches_are_told_with_their_padding_in_microseconds() -> None:
    found = samples(page(BatchExecuted("m", 1, "s", 3, 1, "idle", 0.01, [0.001, 0.002])))
    model = (("model_name", "m"),)
    assert found[PREFIX + "batching_session:processed_batch_size_sum", model] == 4
    assert found[PREFIX + "batching_session:queuing_latency_count", model] == 2
    assert found[PREFIX + "batching_session:queuing_latency_sum", model] == 3000
    assert found[PREFIX + "batching_session:padding_size_sum", (("execution_batch_size", "4"), *model)] == 1
    assert found[PREFIX + "runtime_latency_sum", (*model, ("runtime", "TF2"))] == 10_000


def test_any_model_name_can_be_read_back() -> None:
    name = 'a"b\\c\nd'
    assert (PREFIX + "request_count_total", (("model_name", name), ("status", "OK"))) in samples(
        page(finished("200", name))
    )


def test_the_count_has_tensorflow_servings_own_name() -> None:
    lines = page(finished("200")).splitlines()
    assert f"# TYPE {PREFIX}request_count counter" in lines
    assert f'{PREFIX}request_count{{model_name="m",status="OK"}} 1' in lines


def test_versions_signatures_and_protocols_of_a_model_add_up() -> None:
    found = samples(page(
        RequestFinished("tensorflow_rest", "200", "m", 1, "s", 1.0),
        RequestFinished("open_inference_rest", "400", "m", 2, "t", 2.0),
        BatchExecuted("m", 1, "s", 3, 1, "idle", 0.5, [0.1]),
        BatchExecuted("m", 2, "t", 2, 2, "full", 0.25, [0.1]),
    ))  # fmt: skip
    model = ("model_name", "m")
    assert found[PREFIX + "request_latency_sum", (("entrypoint", "REST"), model)] == 3_000_000
    assert found[PREFIX + "runtime_latency_sum", (model, ("runtime", "TF2"))] == 750_000
    assert found[PREFIX + "batching_session:processed_batch_size_bucket", (("le", "4.0"), model)] == 2
    assert found[PREFIX + "batching_session:padding_size_sum", (("execution_batch_size", "4"), model)] == 3


def test_what_is_counted_of_a_model_never_falls_while_its_versions_come_and_go() -> None:
    """Its metrics have no versions, and Prometheus takes one that falls for a restart: it would show a huge rate."""
    counts = Counts()
    tell, pages = tell_all(counts.subscriptions), TensorFlowMetrics(counts)
    for version in range(1, 12):
        tell(ModelStateChanged("m", version, "LOADING"))
        tell(finished("200")._replace(version=version))
        tell(BatchExecuted("m", version, "s", 3, 1, "idle", 0.01, [0.001, 0.002]))
        if version > 1:
            tell(ModelStateChanged("m", version - 1, "END"))
    found = samples(whole(pages.render()).decode())
    model = (("model_name", "m"),)
    assert found[PREFIX + "request_count_total", (*model, ("status", "OK"))] == 11
    assert found[PREFIX + "request_latency_count", (("entrypoint", "REST"), *model)] == 11
    assert found[PREFIX + "runtime_latency_count", (*model, ("runtime", "TF2"))] == 11
    assert found[PREFIX + "batching_session:queuing_latency_count", model] == 22
    assert found[PREFIX + "batching_session:padding_size_sum", (("execution_batch_size", "4"), *model)] == 11

    tell(ModelStateChanged("m", 11, "END"))
    for number in range(64):
        tell(ModelStateChanged(f"n{number}", 1, "END"))
    assert "model_name" not in whole(pages.render()).decode(), "a name that is gone takes no memory"
    assert (counts.past_requests, counts.past_batches) == ({}, {})
