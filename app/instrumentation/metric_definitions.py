"""The one list of Ferry's metrics: the page is written from it, and so is docs/metrics.md.

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


REQUESTS = MetricDefinition(
    "ferry_requests_total", "counter", ("protocol", "code", *_FUNCTION),
    "Requests answered, by protocol and its status code.",
)  # fmt: skip
REQUEST_SECONDS = MetricDefinition(
    "ferry_request_seconds", "histogram", ("protocol", *_FUNCTION), "Seconds from a request's arrival to its answer."
)
QUEUE_SECONDS = MetricDefinition(
    "ferry_queue_seconds", "histogram", _FUNCTION, "Seconds that requests waited for a device."
)
COMPUTE_SECONDS = MetricDefinition(
    "ferry_compute_seconds", "histogram", _FUNCTION, "Seconds that batches took on the device."
)
BATCH_ROWS = MetricDefinition("ferry_batch_rows", "histogram", _FUNCTION, "Rows in a batch, padding not counted.")
BATCHES = MetricDefinition(
    "ferry_batches_total", "counter", ("reason", *_FUNCTION),
    "Batches executed, by the reason that closed them: full, idle, delay, drain or retry.",
)  # fmt: skip
PADDED_ROWS = MetricDefinition(
    "ferry_padded_rows_total", "counter", _FUNCTION, "Padding rows computed to reach an allowed batch size."
)
FAILED_EXECUTIONS = MetricDefinition(
    "ferry_failed_executions_total", "counter", _FUNCTION, "Requests whose execution failed, each counted alone."
)
EXPIRED_EXECUTIONS = MetricDefinition(
    "ferry_expired_executions_total", "counter", _FUNCTION,
    "Requests executed although their deadline had passed; above 0 only by a bug.",
)  # fmt: skip
REJECTED_BATCHES = MetricDefinition(
    "ferry_rejected_batches_total", "counter", _FUNCTION,
    "Calls that failed because of some of their requests, which were run again in smaller groups.",
)  # fmt: skip
REJECTED_SECONDS = MetricDefinition(
    "ferry_rejected_seconds_total", "counter", _FUNCTION, "Seconds of these calls."
)  # fmt: skip
SHADOW_CHECKS = MetricDefinition(
    "ferry_shadow_checks_total", "counter", ("result", *_FUNCTION),
    "Requests computed again, alone and plain, by result: agrees; variant, padding or sharing if that changed the "
    "answer and is not used any more; random; failed.",
)  # fmt: skip
REJECTED_CONNECTIONS = MetricDefinition(
    "ferry_rejected_connections_total", "counter", ("reason",),
    "HTTP connections rejected with 503 because there are max_connections with a request (full) or "
    "max_connections_per_address (address), and those that waited for a request and were closed for a new one "
    "(gave_way).",
)  # fmt: skip
QUEUE_ROWS = MetricDefinition("ferry_queue_rows", "gauge", (), "Rows that wait for a device.")
MEMORY_BYTES = MetricDefinition(
    "ferry_memory_bytes", "gauge", ("held_for",),
    "Bytes of the memory budget that are held now for queue (tensors that wait), bodies (of requests that are not "
    "answered) and replies (that are not read); of the process that executes models, not of frontends.",
)  # fmt: skip
MEMORY_BUDGET_BYTES = MetricDefinition(
    "ferry_memory_budget_bytes", "gauge", (),
    "The memory budget: half of it for the queue, half for bodies and replies, shared among frontends.",
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
MODEL_PROBLEM = MetricDefinition(
    "ferry_model_problem", "gauge", ("model", "version", "kind"),
    "1 for each version that should be served and is not; kind: failed, missing, changing, incomplete, "
    "unreadable, silent or no_room. Version 0 is the model as a whole. /readyz and /health tell the reason.",
)  # fmt: skip
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
IMPROVING = MetricDefinition(
    "ferry_improving", "gauge", ("model", "version"),
    "1 while background work still makes a version faster (larger batches, variants, shared calls), then 0.",
)  # fmt: skip

#: In the order of docs/metrics.md.
FERRY_METRICS = (
    REQUESTS, REQUEST_SECONDS, REJECTED_CONNECTIONS, QUEUE_ROWS, MEMORY_BYTES, MEMORY_BUDGET_BYTES, QUEUE_SECONDS,
    COMPUTE_SECONDS, BATCHES, BATCH_ROWS, PADDED_ROWS,
    FAILED_EXECUTIONS, EXPIRED_EXECUTIONS, SHADOW_CHECKS, REJECTED_BATCHES, REJECTED_SECONDS, PIPELINE_REQUESTS,
    PIPELINE_SECONDS, PIPELINE_OVERHEAD, STEPS, STEP_ROWS, STEP_QUEUE_SECONDS, STEP_COMPUTE_SECONDS, REPLICAS,
    EXECUTION_VARIANT, COMPILED_PROGRAMS, COMPILED_PROGRAMS_LIMIT, IMPROVING, MODEL_PROBLEM,
)  # fmt: skip

_INTRODUCTION = """\
# Metrics

`GET /metrics` shows these in Prometheus' text format. A histogram `x` appears as `x_bucket`, `x_sum` and `x_count`.
`ferry-model-server` shows them at TensorFlow Serving's path, together with
[metrics by TensorFlow Serving's names](migrate-from-tensorflow-serving.md#the-metrics-page).
With several frontends the page counts the requests of all of them.

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
