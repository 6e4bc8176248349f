import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from app.core.events import (
    BatchExecuted,
    BatchRejected,
    CallRepeated,
    ConnectionsRejected,
    Event,
    ModelImproving,
    ModelPlaced,
    ModelStateChanged,
    ReloadFailed,
    RequestFinished,
    RequestsRefused,
    RequestTraced,
    RowsTried,
    ShadowChecked,
    VariantsChosen,
    tell_all,
)
from app.core.versions import ModelProblem, ProblemKind, VersionState
from app.instrumentation.counts import Counts
from app.instrumentation.load_counts import LoadCounts
from app.instrumentation.metric_lines import content_type_of
from app.instrumentation.metrics import Metrics
from app.instrumentation.model_facts import ModelFacts
from app.instrumentation.state_metrics import ServerState
from app.runtime import CompiledPrograms
from tests.instrumentation.pages import metrics_text
from tests.instrumentation.pipeline_events import computed, failed, passed_over, pipeline_ended

MODEL = {"model": "m", "version": "1", "signature": "s"}


def told(*events: Event) -> Metrics:
    counts, facts = Counts(), ModelFacts()
    metrics = Metrics(counts, facts)
    tell = tell_all(counts.subscriptions, metrics.subscriptions, facts.subscriptions)
    for event in events:
        tell(event)
    return metrics


def samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(metrics_text(metrics))
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
    metrics = Metrics(Counts(), ModelFacts(), lambda: ServerState(programs=CompiledPrograms(1999, 2000)))
    assert value(metrics, "ferry_compiled_programs") == 1999
    assert value(metrics, "ferry_compiled_programs_limit") == 2000
    assert "ferry_compiled_programs" not in metrics_text(told())


def test_calls_whose_requests_are_run_again_are_counted_with_their_seconds() -> None:
    metrics = told(*[BatchRejected("m", 1, "s", 8, 8, 0.5)] * 2)
    assert value(metrics, "ferry_rejected_batches_total", **MODEL) == 2
    assert value(metrics, "ferry_rejected_seconds_total", **MODEL) == 1.0


def test_rows_that_are_kept_for_a_proof_are_shown_in_bytes() -> None:
    metrics = Metrics(Counts(), ModelFacts(), lambda: ServerState(kept_row_bytes=4096))
    assert value(metrics, "ferry_kept_rows_bytes") == 4096


def test_calls_that_are_made_since_another_was_rejected_are_counted_by_reason() -> None:
    metrics = told(*[CallRepeated("m", 1, "s", "search", accepted) for accepted in (True, False)])
    assert value(metrics, "ferry_repeated_calls_total", reason="search", **MODEL) == 2


def test_rejected_connections_are_counted_by_reason_from_the_start() -> None:
    metrics = told(ConnectionsRejected("full"), ConnectionsRejected("gave_way", 3))
    counted = {
        reason: value(metrics, "ferry_rejected_connections_total", reason=reason)
        for reason in ("full", "address", "gave_way")
    }
    assert counted == {"full": 1, "address": 0, "gave_way": 3}


def test_the_queue_is_read_when_asked() -> None:
    state = ServerState()
    metrics = Metrics(Counts(), ModelFacts(), lambda: state)
    state = ServerState(queue_rows=7, waiting={"m": (7, 0.5)})
    assert value(metrics, "ferry_queue_rows") == 7
    assert value(metrics, "ferry_model_queue_rows", model="m") == 7
    assert value(metrics, "ferry_model_oldest_request_seconds", model="m") == 0.5


def test_models_that_do_not_work_are_there_while_they_do_not() -> None:
    problems = [
        ModelProblem("bad", 2, ProblemKind.FAILED, "it holds no graph"),
        ModelProblem("gone", None, ProblemKind.MISSING, "it has\n  no folder"),
    ]
    metrics = Metrics(Counts(), ModelFacts(), lambda: ServerState(problems=problems))
    bad, gone = ("bad", "2", "failed", "it holds no graph"), ("gone", "0", "missing", "it has no folder")
    for labels in (bad, gone):
        named = dict(zip(("model", "version", "kind", "reason"), labels, strict=True))
        assert value(metrics, "ferry_model_problem", **named) == 1
    problems.clear()
    assert not [name for name, _ in samples(metrics) if name == "ferry_model_problem"]


def test_batch_sizes_whose_variant_a_shadow_check_stopped_are_plain() -> None:
    metrics = told(
        ModelStateChanged("m", 1, "AVAILABLE"),
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


def test_trials_with_rows_of_requests_are_counted_with_their_seconds() -> None:
    tried = [
        RowsTried("m", 1, "s", rows, result, 0.25) for rows, result in ((2, "agrees"), (4, "agrees"), (8, "mixes"))
    ]
    metrics = told(ModelStateChanged("m", 1, "AVAILABLE"), *tried)
    assert value(metrics, "ferry_row_trials_total", result="agrees", **MODEL) == 2
    assert value(metrics, "ferry_row_trials_total", result="mixes", **MODEL) == 1
    assert value(metrics, "ferry_row_trial_seconds_total", **MODEL) == 0.75


def test_every_metric_has_a_help_text() -> None:
    metrics = told(ModelStateChanged("m", 1, "AVAILABLE"))
    families = list(text_string_to_metric_families(metrics_text(metrics)))
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
    lines = [line.rsplit(" ", 1)[0] for line in metrics_text(metrics).splitlines() if not line.startswith("#")]
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


SERVED = ServerState(
    ready=True,
    states={("m", 1): VersionState.AVAILABLE},
    in_flight={("m", 1): 0},
    signatures={("m", 1): ("s",)},
    slots={"GPU:0": (2, 1)},
)


def test_what_is_served_is_there_as_zero_before_the_first_request() -> None:
    metrics = Metrics(Counts(), ModelFacts(), lambda: SERVED)
    zero: list[tuple[str, dict[str, str]]] = [
        ("ferry_requests_total", {"protocol": "tensorflow_rest", "code": "200", **MODEL}),
        ("ferry_requests_total", {"protocol": "open_inference_grpc", "code": "OK", **MODEL}),
        ("ferry_compute_seconds_count", MODEL),
        ("ferry_padding_seconds_total", MODEL),
        ("ferry_shadow_checks_total", {"result": "variant", **MODEL}),
        ("ferry_device_busy_seconds_total", {"device": "GPU:0", "model": "m"}),
        ("ferry_model_queue_rows", {"model": "m"}),
        ("ferry_requests_in_flight", {"model": "m", "version": "1"}),
        ("ferry_refused_requests_total", {"cause": "queue_full"}),
        ("ferry_event_loop_lag_seconds_count", {}),
    ]
    assert [value(metrics, name, **labels) for name, labels in zero] == [0] * len(zero)


def test_a_request_that_was_counted_is_not_shown_as_zero_too() -> None:
    counts = Counts()
    metrics = Metrics(counts, ModelFacts(), lambda: SERVED)
    tell_all(counts.subscriptions)(RequestFinished("tensorflow_rest", "200", "m", 1, "s", 0.002))
    lines = [line for line in metrics_text(metrics).splitlines() if line.startswith("ferry_requests_total")]
    labels = 'code="200",model="m",protocol="tensorflow_rest",signature="s",version="1"'
    assert [line for line in lines if "tensorflow_rest" in line] == [f"ferry_requests_total{{{labels}}} 1.0"]


def test_a_version_is_in_one_state() -> None:
    metrics = Metrics(Counts(), ModelFacts(), lambda: SERVED)
    states = {state: value(metrics, "ferry_model_state", model="m", version="1", state=state) for state in VersionState}
    assert states == dict.fromkeys(VersionState, 0) | {VersionState.AVAILABLE: 1}
    assert value(metrics, "ferry_ready") == 1
    assert value(metrics, "ferry_device_slots", device="GPU:0") == 2
    assert value(metrics, "ferry_device_free_slots", device="GPU:0") == 1


def test_loads_are_counted_by_their_end_with_their_seconds() -> None:
    metrics = Metrics(Counts(), ModelFacts(), lambda: SERVED, clock=iter([0.0, 3.0, 10.0, 12.0]).__next__)
    tell = tell_all(metrics.subscriptions)
    for state, error in (("START", ""), ("LOADING", ""), ("AVAILABLE", ""), ("LOADING", ""), ("END", "it is broken")):
        tell(ModelStateChanged("m", 1, state, error))
    assert value(metrics, "ferry_model_loads_total", model="m", result="loaded") == 1
    assert value(metrics, "ferry_model_loads_total", model="m", result="failed") == 1
    assert value(metrics, "ferry_model_load_seconds_sum", model="m") == 5
    assert value(metrics, "ferry_model_load_seconds_bucket", model="m", le="2.5") == 1


def test_a_load_anew_that_fails_is_counted() -> None:
    metrics = Metrics(Counts(), ModelFacts(), lambda: SERVED, clock=iter([0.0, 3.0]).__next__)
    tell = tell_all(metrics.subscriptions)
    for state in ("START", "LOADING", "AVAILABLE"):
        tell(ModelStateChanged("m", 1, state))
    tell(ReloadFailed("m", 1, "it is broken"))
    assert value(metrics, "ferry_model_loads_total", model="m", result="failed") == 1
    assert value(metrics, "ferry_model_load_seconds_count", model="m") == 1


def test_loads_of_names_that_come_and_go_take_no_memory_although_no_page_is_asked_for() -> None:
    loads = LoadCounts(lambda: 0.0)
    for number in range(1100):
        for state in ("LOADING", "AVAILABLE", "END") if number else ("LOADING", "AVAILABLE"):
            loads.model_state_changed(ModelStateChanged(f"m{number}", 1, state))
    assert list(loads.results) == list(loads.seconds) == ["m0", *(f"m{number}" for number in range(76, 1100))]


def test_loads_of_a_model_that_is_gone_are_forgotten() -> None:
    metrics = told(ModelStateChanged("gone", 1, "LOADING"), ModelStateChanged("gone", 1, "AVAILABLE"))
    assert not [name for name, labels in samples(metrics) if ("model", "gone") in labels]


def test_refused_requests_are_counted_by_cause() -> None:
    metrics = told(RequestsRefused("late"), RequestsRefused("expired", 3))
    assert value(metrics, "ferry_refused_requests_total", cause="late") == 1
    assert value(metrics, "ferry_refused_requests_total", cause="expired") == 3


def test_versions_that_come_and_go_leave_no_more_series_than_a_few() -> None:
    counts, facts = Counts(), ModelFacts()
    metrics = Metrics(counts, facts)
    tell = tell_all(counts.subscriptions, metrics.subscriptions, facts.subscriptions)
    sizes = []
    for version in range(1, 16):
        tell(ModelStateChanged("m", version, "LOADING"))
        tell(ModelStateChanged("m", version, "AVAILABLE"))
        tell(RequestFinished("tensorflow_rest", "200", "m", version, "s", 0.002))
        tell(BatchExecuted("m", version, "s", 1, 0, "idle", 0.01, [0.001]))
        tell(ShadowChecked("m", version, "s", "agrees", 0.1))
        tell(RowsTried("m", version, "s", 4, "agrees", 0.1))
        tell(pipeline_ended("answered")._replace(pipeline="m", version=version))
        tell(ModelStateChanged("m", version, "END"))
        sizes.append(len(samples(metrics)))
    assert sizes[-1] == sizes[5]
    last = MODEL | {"version": "15"}
    assert value(metrics, "ferry_requests_total", protocol="tensorflow_rest", code="200", **last) == 1


def test_names_that_come_and_go_leave_no_more_series_than_a_few() -> None:
    counts, facts = Counts(), ModelFacts()
    metrics = Metrics(counts, facts)
    tell = tell_all(counts.subscriptions, metrics.subscriptions, facts.subscriptions)
    tell(RequestFinished("tensorflow_rest", "404", "", 0, "", 0.001))
    sizes = {}
    for number in range(80):
        name = f"m{number}"
        tell(ModelStateChanged(name, 1, "LOADING"))
        tell(ModelStateChanged(name, 1, "AVAILABLE"))
        tell(RequestFinished("tensorflow_rest", "200", name, 1, "s", 0.002))
        tell(BatchExecuted(name, 1, "s", 1, 0, "idle", 0.01, [0.001]))
        tell(ModelStateChanged(name, 1, "END"))
        if name == "m3":
            tell(ModelStateChanged(name, 1, "LOADING"))  # it is served again
        if number in (62, 65, 79):
            sizes[number] = len(list(samples(metrics)))
    assert sizes[79] == sizes[65] > sizes[62], "64 that ended, and the one that is served"
    shown = {dict(labels)["model"] for name, labels in samples(metrics) if name == "ferry_requests_total"}
    assert shown == {"", "m3", *(f"m{number}" for number in range(16, 80))}


def test_what_is_told_of_a_version_after_its_end_is_not_shown() -> None:
    """The background work of a version may reach it when it has ended, and tells that nothing is left to do."""
    findings: list[Event] = [
        ModelPlaced("m", 1, ["CPU:0"]),
        ModelImproving("m", 1, "larger batches"),
        ModelImproving("m", 1, ""),
        ShadowChecked("m", 1, "s", "agrees", 0.1),
        RowsTried("m", 1, "s", 4, "agrees", 0.1),
        VariantsChosen("m", 1, "s", {1: ("xla", 2.0)}),
    ]
    states = [ModelStateChanged("m", 1, state) for state in ("LOADING", "AVAILABLE", "END")]
    assert set(samples(told(*states, *findings))) == set(samples(told(*states)))
    assert set(samples(told(states[0], *findings, *states[1:], *findings))) == set(samples(told(*states)))
    assert value(told(states[0], *findings), "ferry_improving", model="m", version="1") == 0


def test_the_last_requests_of_a_version_that_ended_are_counted_and_take_no_memory() -> None:
    """Frontends tell of requests some time after they were answered."""
    counts = Counts()
    tell = tell_all(counts.subscriptions)
    for version in range(1, 20):
        tell(ModelStateChanged("m", version, "END"))
    for version in range(1, 20):
        tell(RequestFinished("tensorflow_rest", "200", "m", version, "s", 0.002))
    assert {version for *_, version, _ in counts.requests} == {16, 17, 18, 19}


def test_openmetrics_is_written_for_who_asks_for_it() -> None:
    asked = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    page = metrics_text(Metrics(Counts(), ModelFacts(), lambda: SERVED), asked)
    assert content_type_of(asked).startswith("application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in openmetrics.text_string_to_metric_families(page)}
    assert families["ferry_requests"].type == "counter"
    assert content_type_of("text/html").startswith("text/plain")


def test_each_bucket_has_the_last_traced_request_that_fell_into_it() -> None:
    seconds = {"a": 0.003, "b": 0.004, "c": 99.0}
    metrics = told(
        *(RequestFinished("tensorflow_rest", "200", "m", 1, "s", each) for each in seconds.values()),
        *(RequestTraced("tensorflow_rest", "m", 1, "s", seconds[each], each, "0" * 16, 1e9) for each in seconds),
        RequestTraced("tensorflow_rest", "gone", 1, "s", 0.1, "d", "0" * 16, 1e9),
    )
    page = metrics_text(metrics, "application/openmetrics-text;version=1.0.0")
    (family,) = (
        each for each in openmetrics.text_string_to_metric_families(page) if each.name == "ferry_request_seconds"
    )
    shown = {each.labels["le"]: each.exemplar.labels["trace_id"] for each in family.samples if each.exemplar}
    assert shown == {"0.005": "b", "+Inf": "c"}
    assert "trace_id" not in metrics_text(metrics)  # the text format has none


@pytest.mark.parametrize("kind", ["text/plain", "application/openmetrics-text"])
@pytest.mark.parametrize("version", ["x", "", "1.x", "-1", "1" * 5000])
def test_an_accept_header_of_nonsense_gets_the_page(kind: str, version: str) -> None:
    metrics = told()
    accepted = f"{kind};version={version}"
    assert "ferry_ready 0.0" in metrics_text(metrics, accepted)


def test_the_process_tells_of_itself() -> None:
    shown = {name for name, _ in samples(told())}
    assert {"process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"} <= shown
