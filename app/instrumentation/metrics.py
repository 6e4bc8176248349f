"""Ferry's Prometheus page, written on request from the counts, the facts and the server's state."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from prometheus_client import ProcessCollector

from app import __version__
from app.core.events import (
    AccessDenied,
    ConnectionsRejected,
    CredentialsLoaded,
    LogLinesDropped,
    ModelStateChanged,
    ReloadFailed,
    RequestsDenied,
    RequestsRefused,
    Subscriptions,
)
from app.instrumentation.counts import BatchCounts, Counts
from app.instrumentation.histogram import Histogram, Labels, merge_histograms
from app.instrumentation.load_counts import LOAD_SECONDS, LoadCounts
from app.instrumentation.loop_lag import LoopLag
from app.instrumentation.metric_lines import MetricLines, Series
from app.instrumentation.model_facts import ModelFacts
from app.instrumentation.pipeline_counts import PipelineCounts, StepCounts
from app.instrumentation.state_metrics import ServerState, state_metrics
from app.instrumentation.tracing.exemplars import Exemplars

#: Model, version and signature.
_Function = tuple[str, int, str]

_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

#: The status of success, by protocol: shown as 0 before the first request.
_SUCCESS = {
    "tensorflow_rest": "200",
    "tensorflow_grpc": "OK",
    "open_inference_rest": "200",
    "open_inference_grpc": "OK",
}
_CAUSES = ("queue_full", "late", "expired", "memory", "shutting_down")
_DENIALS = ("missing", "malformed", "unknown", "expired", "not_allowed", "rate")
_LOADS = [(source, result) for source in ("file", "issuer") for result in ("loaded", "failed")]
_REASONS = ("full", "idle", "delay", "drain", "retry")
_WHY_REPEATED = ("without_padding", "in_parts", "search")
_STEP_RESULTS = ("computed", "passed_over", "failed")
_SHADOW_RESULTS = ("agrees", "variant", "padding", "sharing", "random", "failed")

#: Metrics that are attributes of the counts of signatures, pipelines and steps.
_OF_BATCHES = {
    "ferry_queue_seconds": "queue_s",
    "ferry_compute_seconds": "compute_s",
    "ferry_padding_seconds_total": "wasted_s",
    "ferry_failed_executions_total": "failed",
    "ferry_expired_executions_total": "expired",
    "ferry_rejected_batches_total": "rejected",
    "ferry_rejected_seconds_total": "rejected_s",
}
_OF_PIPELINES = {"ferry_pipeline_seconds": "seconds", "ferry_pipeline_overhead_seconds_total": "overhead_s"}
_OF_STEPS = {
    "ferry_pipeline_step_rows_total": "rows",
    "ferry_pipeline_step_queue_seconds": "queue_s",
    "ferry_pipeline_step_compute_seconds": "compute_s",
}

_Counts = TypeVar("_Counts")


class Metrics:
    """All metrics of metric_definitions.py.

    Args:
        state: makes the state of the server; called for each page.
        memory_budget: bytes.
        runtime: the name of the runtime.
        clock: monotonic seconds.

    Attributes:
        loop_lag: to be started and stopped by the owner of the event loop.
    """

    def __init__(
        self,
        counts: Counts,
        facts: ModelFacts,
        state: Callable[[], ServerState] = ServerState,
        *,
        memory_budget: int = 0,
        runtime: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # What others count and know.
        self._state = state
        self._counts = counts
        self._facts = facts
        self._loads = LoadCounts(clock)
        self._exemplars = Exemplars()

        # What events count.
        self._rejected_connections = Counter({"full": 0, "address": 0, "gave_way": 0, "handshake": 0})
        self._refused_requests = Counter(dict.fromkeys(_CAUSES, 0))
        self._denied_requests = Counter(dict.fromkeys(_DENIALS, 0))
        self._credential_loads = Counter(dict.fromkeys(_LOADS, 0))
        self._dropped_lines = 0  # of frontends

        # What a page shows beside that.
        self.loop_lag = LoopLag()
        self._lines = MetricLines()
        self._process = ProcessCollector(registry=None)
        self._build = __version__, platform.python_version(), runtime
        self._memory_budget = memory_budget
        self.subscriptions: Subscriptions = {
            **self._exemplars.subscriptions,
            ConnectionsRejected: lambda event: self._rejected_connections.update({event.reason: event.number}),
            RequestsRefused: lambda event: self._refused_requests.update({event.cause: event.number}),
            RequestsDenied: lambda event: self._denied_requests.update({event.reason: event.number}),
            AccessDenied: lambda event: self._denied_requests.update([event.reason]),
            CredentialsLoaded: lambda event: self._credential_loads.update([(event.source, event.result)]),
            LogLinesDropped: self._log_lines_dropped,
            ModelStateChanged: self._loads.model_state_changed,
            ReloadFailed: self._loads.reload_failed,
        }

    def render(self, content_type: str) -> Generator[None, None, bytes]:
        """The page in a form that `content_type_of` names, in pieces."""
        return self._lines.write(content_type, self._metrics(), self._process)

    def _metrics(self) -> Iterator[Series | None]:
        """All metrics but those of the process; None where a piece may end."""
        state = self._state()
        yield None
        yield Series.of("ferry_build_info", {self._build: 1})
        versions = [((model, str(number)), facts) for (model, number), facts in self._facts.versions.items()]
        yield Series.of("ferry_replicas", {labels: len(facts.devices) for labels, facts in versions if facts.devices})
        improving = {labels: bool(facts.improving) for labels, facts in versions if facts.improving is not None}
        yield Series.of("ferry_improving", improving)
        yield Series.of("ferry_memory_budget_bytes", {(): self._memory_budget})
        functions = [(*version, name) for version, names in state.signatures.items() for name in names]
        yield from state_metrics(state)
        yield from self._model_loads({model for model, _ in state.states})
        yield from self._requests(functions)
        yield from self._batches(functions)
        yield from self._pipelines()
        yield from self._findings(functions)
        yield _counted("ferry_rejected_connections_total", self._rejected_connections)
        yield _counted("ferry_refused_requests_total", self._refused_requests)
        yield _counted("ferry_denied_requests_total", self._denied_requests)
        yield Series.of("ferry_credential_loads_total", self._credential_loads)
        yield Series.of("ferry_dropped_log_lines_total", {(): state.dropped_lines + self._dropped_lines})
        yield Series.of("ferry_event_loop_lag_seconds", {(): self.loop_lag.seconds})

    def _model_loads(self, models: set[str]) -> Iterator[Series]:
        self._loads.keep_only(models)
        results = {
            (result, model): count
            for model, results in self._loads.results.items()
            for result, count in results.items()
        }
        yield Series.of("ferry_model_loads_total", results)
        seconds = {(model,): seconds for model, seconds in self._loads.seconds.items()}
        yield Series.of("ferry_model_load_seconds", seconds, LOAD_SECONDS)

    def _requests(self, functions: Sequence[_Function]) -> Iterator[Series | None]:
        counted = [
            (protocol, code, (model, str(version), signature), seconds)
            for (protocol, code, model, version, signature), seconds in self._counts.requests.items()
        ]
        requests: dict[Labels, float] = {
            (protocol, code, model, str(version), signature): 0
            for model, version, signature in functions
            for protocol, code in _SUCCESS.items()
        }
        yield None
        requests |= {(protocol, code, *function): seconds.count for protocol, code, function, seconds in counted}
        yield Series.of("ferry_requests_total", requests)

        over_codes = merge_histograms(((protocol, *function), seconds) for protocol, _, function, seconds in counted)
        yield Series.of("ferry_request_seconds", over_codes, exemplars=self._exemplars.of)

    def _batches(self, functions: Sequence[_Function]) -> Iterator[Series | None]:
        counted: dict[Labels, BatchCounts] = {
            (model, str(version), signature): BatchCounts() for model, version, signature in functions
        }
        counted |= {
            (model, str(version), signature): counts
            for (model, version, signature), counts in self._counts.batches.items()
        }
        yield None
        yield from _attributes(_OF_BATCHES, counted)
        rows, padded_rows = dict[Labels, Histogram](), dict[Labels, float]()
        batches = dict[Labels, float]()
        for labels, counts in counted.items():
            rows[labels], padded_rows[labels] = counts.rows(_ROWS), counts.padded_rows()
            closed_by = dict.fromkeys(_REASONS, 0) | counts.closed_by()
            batches |= {(reason, *labels): calls for reason, calls in closed_by.items()}
            yield None
        yield Series.of("ferry_batch_rows", rows, _ROWS)
        yield Series.of("ferry_batches_total", batches)
        yield Series.of("ferry_padded_rows_total", padded_rows)
        repeated = _by_cause(counted, lambda counts: dict.fromkeys(_WHY_REPEATED, 0) | counts.repeated)
        yield Series.of("ferry_repeated_calls_total", repeated)

    def _pipelines(self) -> Iterator[Series]:
        counted: dict[Labels, PipelineCounts] = {
            (name, str(version)): counts for (name, version), counts in self._counts.pipelines.items()
        }
        yield Series.of("ferry_pipeline_requests_total", _by_cause(counted, lambda counts: counts.outcomes))
        yield from _attributes(_OF_PIPELINES, counted)

        steps: dict[Labels, StepCounts] = {
            (*labels, step): counts for labels, pipeline in counted.items() for step, counts in pipeline.steps.items()
        }
        ended = {(result, *labels): getattr(steps[labels], result) for labels in steps for result in _STEP_RESULTS}
        yield Series.of("ferry_pipeline_steps_total", ended)
        yield from _attributes(_OF_STEPS, steps)

    def _findings(self, functions: Sequence[_Function]) -> Iterator[Series]:
        """The findings on versions and signatures: how they run, and the results of shadow checks and trials."""
        checks: dict[Labels, Counter[str]] = {(name, str(number), each): Counter() for name, number, each in functions}
        checks |= self._by_function("shadow_checks")
        shown = _by_cause(checks, lambda results: dict.fromkeys(_SHADOW_RESULTS, 0) | results)
        yield Series.of("ferry_shadow_checks_total", shown)
        yield Series.of("ferry_row_trials_total", _by_cause(self._by_function("row_trials"), lambda results: results))
        yield Series.of("ferry_row_trial_seconds_total", self._by_function("row_trial_s"))
        proofs = {(proof or "none", *function): 1 for function, proof in self._by_function("row_proofs").items()}
        yield Series.of("ferry_row_proof", proofs)
        speed_ups = {
            (*function, str(each["batch_size"]), each["variant"]): each["speed_up"]
            for function, sizes in self._by_function("variants").items()
            for each in sizes
        }
        yield Series.of("ferry_execution_variant", speed_ups)

    def _by_function(self, name: str) -> dict[Labels, Any]:
        """The facts of this name by model, version and signature."""
        return {
            (model, str(number), signature): each
            for (model, number), facts in self._facts.versions.items()
            for signature, each in getattr(facts, name).items()
        }

    def _log_lines_dropped(self, event: LogLinesDropped) -> None:
        self._dropped_lines += event.number


def _counted(name: str, counts: Mapping[str, int]) -> Series:
    """A counter with one label."""
    return Series.of(name, {(label,): count for label, count in counts.items()})


def _attributes(metrics: Mapping[str, str], counted: Mapping[Labels, object]) -> Iterator[Series]:
    """The series of metrics that are attributes of counts. `metrics`: the attribute by the name of the metric."""
    for name, attribute in metrics.items():
        yield Series.of(name, {labels: getattr(counts, attribute) for labels, counts in counted.items()})


def _by_cause(
    counted: Mapping[Labels, _Counts], causes: Callable[[_Counts], Mapping[str, float]]
) -> dict[Labels, float]:
    """Numbers with one more label, the first: the key under which `causes` of counts has them."""
    return {(cause, *labels): number for labels, counts in counted.items() for cause, number in causes(counts).items()}
