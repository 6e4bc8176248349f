"""The one list of Ferry's metrics, in the order of docs/metrics.md, which is written from it, as the page is.

`python -m app.instrumentation.metric_definitions > docs/metrics.md` writes the page anew; a test compares them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

_FUNCTION = ("model", "version", "signature")
_PIPELINE = ("pipeline", "version")
_STEP = (*_PIPELINE, "step")


class MetricDefinition(NamedTuple):
    """A metric as dashboards see it. A histogram `x` appears as `x_bucket`, `x_sum` and `x_count`."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


BUILD = MetricDefinition(
    "ferry_build_info", "gauge", ("version", "python_version", "runtime"), "1: what this process runs."
)
READY = MetricDefinition("ferry_ready", "gauge", (), "1 if requests should be sent here, as /readyz says; else 0.")
MODEL_STATE = MetricDefinition(
    "ferry_model_state", "gauge", ("model", "version", "state"),
    "1 for the state that a version is in, 0 for the others: START, LOADING, AVAILABLE (it is served), UNLOADING or "
    "END (its load failed). A version that has ended in peace is not shown.",
)  # fmt: skip
MODEL_PROBLEM = MetricDefinition(
    "ferry_model_problem", "gauge", ("model", "version", "kind", "reason"),
    "1 for each version that should be served and is not; kind: failed, missing, changing, incomplete, "
    "unreadable, silent, no_room, no_memory or waiting. Version 0 is the model as a whole. The reason is the text of "
    "/readyz, cut after 300 characters; do not group by it.",
)  # fmt: skip
MODEL_LOADS = MetricDefinition(
    "ferry_model_loads_total", "counter", ("result", "model"),
    "Loads of versions, by result: loaded or failed. Those of served versions anew count, too.",
)  # fmt: skip
MODEL_LOAD_SECONDS = MetricDefinition(
    "ferry_model_load_seconds", "histogram", ("model",),
    "Seconds that loads took, warm-up included, whether they succeeded or not.",
)  # fmt: skip
IMPROVING = MetricDefinition(
    "ferry_improving", "gauge", ("model", "version"),
    "1 while background work still makes a version faster (larger batches, variants, shared calls), then 0.",
)  # fmt: skip
REQUESTS = MetricDefinition(
    "ferry_requests_total", "counter", ("protocol", "code", *_FUNCTION),
    "Requests answered, by protocol and its status code.",
)  # fmt: skip
REQUEST_SECONDS = MetricDefinition(
    "ferry_request_seconds", "histogram", ("protocol", *_FUNCTION), "Seconds from a request's arrival to its answer."
)
REQUESTS_IN_FLIGHT = MetricDefinition(
    "ferry_requests_in_flight", "gauge", ("model", "version"),
    "Requests that wait for a device or are computed; of a pipeline those of its steps, at their models.",
)  # fmt: skip
REFUSED_REQUESTS = MetricDefinition(
    "ferry_refused_requests_total", "counter", ("cause",),
    "Requests that were answered with an error although nothing was wrong with them, by cause: queue_full; late "
    "(rejected at once, since it would miss its deadline); expired (it missed it, waiting or being computed); memory "
    "(bodies and replies take all that is for them); shutting_down.",
)  # fmt: skip
DENIED_REQUESTS = MetricDefinition(
    "ferry_denied_requests_total", "counter", ("reason",),
    "Requests answered with 401, 403 or 429 (gRPC: UNAUTHENTICATED, PERMISSION_DENIED, RESOURCE_EXHAUSTED) by what the "
    "access file says, by reason: missing (no credential), malformed, unknown, expired, not_allowed or rate.",
)  # fmt: skip
CREDENTIAL_LOADS = MetricDefinition(
    "ferry_credential_loads_total", "counter", ("source", "result"),
    "How often credentials were read anew, by source: file (the access file) or issuer (its keys); result: loaded or "
    "failed, when what was known before stays. With frontends each of them reads.",
)  # fmt: skip
CONNECTIONS = MetricDefinition(
    "ferry_connections", "gauge", ("transport",),
    "Open connections, by transport: http or grpc. Not with frontends.",
)  # fmt: skip
REJECTED_CONNECTIONS = MetricDefinition(
    "ferry_rejected_connections_total", "counter", ("reason",),
    "HTTP connections rejected with 503 because there are max_connections with a request (full) or "
    "max_connections_per_address (address), those that waited for a request and were closed for a new one "
    "(gave_way), and those of HTTP and gRPC that ended within the handshake of TLS (handshake).",
)  # fmt: skip
TLS_EXPIRY = MetricDefinition(
    "ferry_tls_certificate_expiry_timestamp_seconds", "gauge", ("certificate",),
    "Unix time at which what new connections use ends to be valid: server (with the certificates behind it, the first "
    "to end) or client_ca. Not there without TLS, as the other metrics of TLS.",
)  # fmt: skip
TLS_RELOADS = MetricDefinition(
    "ferry_tls_reloads_total", "counter", ("result",),
    "Changes of the files of certificates and keys, by result: loaded, or failed (what was loaded before stays in "
    "use). With frontends, as the process that executes models saw them.",
)  # fmt: skip
TLS_FILES_USABLE = MetricDefinition(
    "ferry_tls_files_usable", "gauge", (),
    "1 if the files of certificates and keys, as they are now, can be used; 0 if not: a restart would fail.",
)  # fmt: skip
QUEUE_ROWS = MetricDefinition("ferry_queue_rows", "gauge", (), "Rows that wait for a device.")
MODEL_QUEUE_ROWS = MetricDefinition("ferry_model_queue_rows", "gauge", ("model",), "The same for each model.")
MODEL_OLDEST_SECONDS = MetricDefinition(
    "ferry_model_oldest_request_seconds", "gauge", ("model",),
    "Seconds that the request of a model which has waited longest for a device has waited; 0 if none waits.",
)  # fmt: skip
DEVICE_BUSY_SECONDS = MetricDefinition(
    "ferry_device_busy_seconds_total", "counter", ("device", "model"),
    "Seconds in which a model's calls kept a device busy. Divided by ferry_device_slots its rate is the busy share: "
    "the measure to scale by.",
)  # fmt: skip
DEVICE_SLOTS = MetricDefinition("ferry_device_slots", "gauge", ("device",), "Calls that a device takes at a time.")
DEVICE_FREE_SLOTS = MetricDefinition(
    "ferry_device_free_slots", "gauge", ("device",), "Calls that a device could take now beside those it computes."
)
DEVICE_MEMORY_BYTES = MetricDefinition(
    "ferry_device_memory_bytes", "gauge", ("device",), "Bytes that TensorFlow uses of the memory of a GPU."
)
DEVICE_MEMORY_PEAK_BYTES = MetricDefinition(
    "ferry_device_memory_peak_bytes", "gauge", ("device",), "The most bytes that it has used there."
)
MEMORY_BYTES = MetricDefinition(
    "ferry_memory_bytes", "gauge", ("held_for",),
    "Bytes of the memory budget that are held now for queue (tensors that wait), bodies (of requests that are not "
    "answered) and replies (that are not read); of the process that executes models, not of frontends.",
)  # fmt: skip
MEMORY_BUDGET_BYTES = MetricDefinition(
    "ferry_memory_budget_bytes", "gauge", (),
    "The memory budget: half of it for the queue, half for bodies and replies, shared among frontends.",
)  # fmt: skip
KEPT_ROWS_BYTES = MetricDefinition(
    "ferry_kept_rows_bytes", "gauge", (),
    "Bytes of rows of requests that are kept until these have proven whether rows may share calls; 128 MiB at most, "
    "beside the memory budget.",
)  # fmt: skip
LOOP_LAG_SECONDS = MetricDefinition(
    "ferry_event_loop_lag_seconds", "histogram", (),
    "How late the event loop was, looked at 4 times a second; of the process that executes models, not of frontends.",
)  # fmt: skip
DROPPED_LOG_LINES = MetricDefinition(
    "ferry_dropped_log_lines_total", "counter", (),
    "Lines of the log that were dropped, since whatever reads standard error did not read; of the process that "
    "executes models and of frontends.",
)  # fmt: skip
QUEUE_SECONDS = MetricDefinition(
    "ferry_queue_seconds", "histogram", _FUNCTION, "Seconds that requests waited for a device."
)
COMPUTE_SECONDS = MetricDefinition(
    "ferry_compute_seconds", "histogram", _FUNCTION, "Seconds that batches took on the device."
)
BATCHES = MetricDefinition(
    "ferry_batches_total", "counter", ("reason", *_FUNCTION),
    "Batches executed, by the reason that closed them: full, idle, delay, drain or retry.",
)  # fmt: skip
BATCH_ROWS = MetricDefinition("ferry_batch_rows", "histogram", _FUNCTION, "Rows in a batch, padding not counted.")
PADDED_ROWS = MetricDefinition(
    "ferry_padded_rows_total", "counter", _FUNCTION, "Padding rows computed to reach an allowed batch size."
)
PADDING_SECONDS = MetricDefinition(
    "ferry_padding_seconds_total", "counter", _FUNCTION,
    "Seconds of calls that went into padding, of rows and of inner shapes: by its share of the elements.",
)  # fmt: skip
FAILED_EXECUTIONS = MetricDefinition(
    "ferry_failed_executions_total", "counter", _FUNCTION, "Requests whose execution failed, each counted alone."
)
EXPIRED_EXECUTIONS = MetricDefinition(
    "ferry_expired_executions_total", "counter", _FUNCTION,
    "Requests executed although their deadline had passed; above 0 only by a bug.",
)  # fmt: skip
ROW_PROOF = MetricDefinition(
    "ferry_row_proof", "gauge", ("proof", *_FUNCTION),
    "1 for what proves that no row of a signature sees another one, so that requests share calls: graph, probe or "
    "traffic; row_independence if that setting says assume; none if each request runs alone.",
)  # fmt: skip
ROW_TRIALS = MetricDefinition(
    "ferry_row_trials_total", "counter", ("result", *_FUNCTION),
    "Calls with rows of requests that had been answered alone, which find out whether rows may share calls, by result: "
    "agrees; mixes or random: requests run alone; doubtful if one of two tries differed; rounded; variant; refused.",
)  # fmt: skip
ROW_TRIAL_SECONDS = MetricDefinition(
    "ferry_row_trial_seconds_total", "counter", _FUNCTION, "Seconds of these calls."
)  # fmt: skip
SHADOW_CHECKS = MetricDefinition(
    "ferry_shadow_checks_total", "counter", ("result", *_FUNCTION),
    "Requests computed again, alone and plain, by result: agrees; variant, padding or sharing if that changed the "
    "answer and is not used any more; random; failed.",
)  # fmt: skip
REJECTED_BATCHES = MetricDefinition(
    "ferry_rejected_batches_total", "counter", _FUNCTION,
    "Calls that failed because of some of their requests, which were run again in smaller groups.",
)  # fmt: skip
REJECTED_SECONDS = MetricDefinition(
    "ferry_rejected_seconds_total", "counter", _FUNCTION, "Seconds of these calls."
)  # fmt: skip
REPEATED_CALLS = MetricDefinition(
    "ferry_repeated_calls_total", "counter", ("reason", *_FUNCTION),
    "Calls made because the model rejected another one, by reason: without_padding and in_parts computed its request "
    "again; search repeated a row of it, to find how many rows the model takes. Their seconds are part of the batch's.",
)  # fmt: skip
PIPELINE_REQUESTS = MetricDefinition(
    "ferry_pipeline_requests_total", "counter", ("outcome", *_PIPELINE),
    "Requests that began in a pipeline, by outcome: answered, failed, cancelled, or rejected before anything was "
    "computed. HTTP rejects at once what equals a request that was just rejected: that is only in "
    "ferry_requests_total (code 503).",
)  # fmt: skip
PIPELINE_SECONDS = MetricDefinition(
    "ferry_pipeline_seconds", "histogram", _PIPELINE,
    "Seconds from a request's arrival at a pipeline to its end, if it was not rejected.",
)  # fmt: skip
PIPELINE_OVERHEAD = MetricDefinition(
    "ferry_pipeline_overhead_seconds_total", "counter", _PIPELINE,
    "Seconds of answered requests in which no step of their longest way waited or was computed.",
)  # fmt: skip
STEPS = MetricDefinition(
    "ferry_pipeline_steps_total", "counter", ("result", *_STEP),
    "Requests at a step, by result: computed, passed_over (no row was left for it) or failed.",
)  # fmt: skip
STEP_ROWS = MetricDefinition(
    "ferry_pipeline_step_rows_total", "counter", _STEP, "Rows of requests that a step computed."
)
STEP_QUEUE_SECONDS = MetricDefinition(
    "ferry_pipeline_step_queue_seconds", "histogram", _STEP, "Seconds that requests waited at a step for a device."
)
STEP_COMPUTE_SECONDS = MetricDefinition(
    "ferry_pipeline_step_compute_seconds", "histogram", _STEP,
    "Seconds that the call of a step took, for each request in it; of a step with fold all calls of a request.",
)  # fmt: skip
REPLICAS = MetricDefinition(
    "ferry_replicas",
    "gauge",
    ("model", "version"),
    "Number of replicas of a version; one that lies on several devices counts once.",
)
EXECUTION_VARIANT = MetricDefinition(
    "ferry_execution_variant", "gauge", (*_FUNCTION, "batch_size", "variant"),
    "Speed-up of the execution variant in use over the plain SavedModel.",
)  # fmt: skip
COMPILED_PROGRAMS = MetricDefinition(
    "ferry_compiled_programs", "gauge", (),
    "Programs that XLA compiled in this process, whose memory TensorFlow keeps until its end.",
)  # fmt: skip
COMPILED_PROGRAMS_LIMIT = MetricDefinition(
    "ferry_compiled_programs_limit", "gauge", (),
    "At most this many programs are compiled: what is loaded after that runs without XLA until the next start.",
)  # fmt: skip

FERRY_METRICS = tuple([each for each in globals().values() if isinstance(each, MetricDefinition)])

_INTRODUCTION = """\
# Metrics

`GET /metrics` shows these in Prometheus' text format, or as OpenMetrics where the `Accept` header asks for that, as
Prometheus does. A histogram `x` appears as `x_bucket`, `x_sum` and `x_count`.
`ferry-model-server` shows them at TensorFlow Serving's path, together with
[metrics by TensorFlow Serving's names](migrate-from-tensorflow-serving.md#the-metrics-page).
With several frontends the page counts the requests of all of them.
Where there is an [access file](access.md), the page needs a key or token with the permission `metrics`; where there is
a [port for operators](deploy.md#a-port-for-operators), it is there alone; [TLS](deploy.md#tls) makes it one of https.

A series of a version, its signatures and its devices is there, as 0, from the moment in which the version is served, so
that a rate sees the first request; but `ferry_request_seconds` begins with the first request of a protocol. The counts
of a version stay until 4 later ones of its model, or 64 later ones of all models, have ended, too: the page does not
grow with names that come and go. It also has `process_*`: CPU seconds, resident memory, open descriptors and start time
of the process that executes models. [runbook.md](runbook.md) says what to do when one of them looks wrong, and
[deploy.md](deploy.md#monitoring) how Prometheus finds them.

A [pipeline](pipelines.md) has the metrics of requests, as every model, and those whose names begin with
`ferry_pipeline_`. What its steps call is counted for their models, together with all other requests to these.

A request that fails before its model is known has the labels `model=""` and `version="0"`.
`protocol` is the name of the protocol and its transport, such as `tensorflow_rest`; `code` is the status in that
protocol's own words: `200`, `503` over HTTP, `OK`, `UNAVAILABLE` over gRPC.

This page is generated: `python -m app.instrumentation.metric_definitions > docs/metrics.md`.

| name | type | labels | meaning |
|---|---|---|---|
"""


def reference_page() -> str:
    return _INTRODUCTION + "".join(
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels) or '-'} | {text} |\n"
        for name, kind, labels, text in FERRY_METRICS
    )


if __name__ == "__main__":
    print(reference_page(), end="")  # noqa: T201 - this is its output
