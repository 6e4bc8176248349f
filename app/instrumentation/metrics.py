"""Ferry's Prometheus page, written on request from the counts, the facts and the server's state."""

from __future__ import annotations

import platform
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import ProcessCollector

from app import __version__
from app.core.events import (
    AccessDenied,
    ConnectionsRejected,
    CredentialsLoaded,
    LogLinesDropped,
    ModelImproving,
    ModelPlaced,
    ModelStateChanged,
    ReloadFailed,
    RequestsDenied,
    RequestsRefused,
    RowsTried,
    ShadowChecked,
)
from app.instrumentation import metric_definitions as definitions
from app.instrumentation.counts import BatchCounts, Counts
from app.instrumentation.histogram import Histogram, Labels, merge_histograms
from app.instrumentation.load_counts import LOAD_SECONDS, LoadCounts
from app.instrumentation.loop_lag import LoopLag
from app.instrumentation.metric_definitions import MetricDefinition
from app.instrumentation.metric_lines import MetricLines, Series
from app.instrumentation.model_facts import ModelFacts, without_late_findings
from app.instrumentation.pipeline_counts import StepCounts
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
_SHADOW_RESULTS = ("agrees", "variant", "padding", "sharing", "random", "failed")


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
        self._state = state
        self._counts = counts
        self._facts = facts
        self._loads = LoadCounts(clock)
        self._exemplars = Exemplars()
        self._shadow_checks = Counter[tuple[str, str, str, str]]()
        self._row_trials = Counter[tuple[str, str, str, str]]()
        self._row_trial_s = defaultdict[tuple[str, str, str], float](float)
        self._rejected_connections = Counter({"full": 0, "address": 0, "gave_way": 0, "handshake": 0})
        self._refused_requests = Counter(dict.fromkeys(_CAUSES, 0))
        self._denied_requests = Counter(dict.fromkeys(_DENIALS, 0))
        self._credential_loads = Counter(dict.fromkeys(_LOADS, 0))
        self._dropped_lines = 0  # of frontends
        self.loop_lag = LoopLag()
        self._lines = MetricLines()
        self._process = ProcessCollector(registry=None)
        self._build = __version__, platform.python_version(), runtime
        self._memory_budget = memory_budget
        self._replicas: dict[Labels, float] = {}
        self._improving: dict[Labels, float] = {}
        self.subscriptions = without_late_findings({
            **self._exemplars.subscriptions,
            ModelPlaced: self._model_placed,
            ModelImproving: self._model_improving,
            ShadowChecked: self._shadow_checked,
            RowsTried: self._rows_tried,
            ConnectionsRejected: self._connections_rejected,
            RequestsRefused: self._requests_refused,
            RequestsDenied: self._requests_denied,
            AccessDenied: self._access_denied,
            CredentialsLoaded: self._credentials_loaded,
            LogLinesDropped: self._log_lines_dropped,
            ModelStateChanged: self._model_state_changed,
            ReloadFailed: self._loads.reload_failed,
        })  # fmt: skip

    def render(self, content_type: str) -> Generator[None, None, bytes]:
        """The page in a form that `content_type_of` names, in pieces."""
        return self._lines.write(content_type, self._metrics(), self._process)

    def _metrics(self) -> Iterator[Series | None]:
        """All metrics but those of the process; None where a piece may end."""
        state = self._state()
        yield None
        yield Series(definitions.BUILD, {self._build: 1})
        yield Series(definitions.REPLICAS, self._replicas)
        yield Series(definitions.IMPROVING, self._improving)
        yield Series(definitions.MEMORY_BUDGET_BYTES, {(): self._memory_budget})
        functions = [(*version, name) for version, names in state.signatures.items() for name in names]
        yield from state_metrics(state)
        yield from self._model_loads({model for model, _ in state.states})
        yield from self._requests(functions)
        yield from self._batches(functions)
        yield from self._pipelines()
        yield from self._steps()
        yield self._shadow_check_results(functions)
        yield Series(definitions.ROW_TRIALS, self._row_trials)  # few: most functions are proven by their graph
        yield Series(definitions.ROW_TRIAL_SECONDS, self._row_trial_s)
        yield _counted(definitions.REJECTED_CONNECTIONS, self._rejected_connections)
        yield _counted(definitions.REFUSED_REQUESTS, self._refused_requests)
        yield _counted(definitions.DENIED_REQUESTS, self._denied_requests)
        yield Series(definitions.CREDENTIAL_LOADS, self._credential_loads)
        yield Series(definitions.DROPPED_LOG_LINES, {(): state.dropped_lines + self._dropped_lines})
        yield Series(definitions.LOOP_LAG_SECONDS, {(): self.loop_lag.seconds})
        yield self._execution_variants()
        yield self._row_proofs()

    def _model_loads(self, models: set[str]) -> Iterator[Series]:
        self._loads.keep_only(models)
        results = {
            (result, model): count
            for model, results in self._loads.results.items()
            for result, count in results.items()
        }
        yield Series(definitions.MODEL_LOADS, results)
        seconds = {(model,): seconds for model, seconds in self._loads.seconds.items()}
        yield Series(definitions.MODEL_LOAD_SECONDS, seconds, LOAD_SECONDS)

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
        yield Series(definitions.REQUESTS, requests)

        over_codes = merge_histograms(((protocol, *function), seconds) for protocol, _, function, seconds in counted)
        yield Series(definitions.REQUEST_SECONDS, over_codes, exemplars=self._exemplars.of)

    def _batches(self, functions: Sequence[_Function]) -> Iterator[Series | None]:
        counted: dict[Labels, BatchCounts] = {
            (model, str(version), signature): BatchCounts() for model, version, signature in functions
        }
        counted |= {
            (model, str(version), signature): counts
            for (model, version, signature), counts in self._counts.batches.items()
        }
        yield None
        yield Series(definitions.QUEUE_SECONDS, {labels: counts.queue_s for labels, counts in counted.items()})
        yield Series(definitions.COMPUTE_SECONDS, {labels: counts.compute_s for labels, counts in counted.items()})
        rows, padded_rows = dict[Labels, Histogram](), dict[Labels, float]()
        batches, repeated = dict[Labels, float](), dict[Labels, float]()
        for labels, counts in counted.items():
            rows[labels], padded_rows[labels] = counts.rows(_ROWS), counts.padded_rows()
            closed_by = dict.fromkeys(_REASONS, 0) | counts.closed_by()
            batches |= {(reason, *labels): calls for reason, calls in closed_by.items()}
            why_repeated = dict.fromkeys(_WHY_REPEATED, 0) | counts.repeated
            repeated |= {(why, *labels): calls for why, calls in why_repeated.items()}
            yield None
        yield Series(definitions.BATCH_ROWS, rows, _ROWS)
        yield Series(definitions.BATCHES, batches)
        yield Series(definitions.PADDED_ROWS, padded_rows)
        numbers: Sequence[tuple[MetricDefinition, Callable[[BatchCounts], float]]] = (
            (definitions.PADDING_SECONDS, lambda counts: counts.wasted_s),
            (definitions.FAILED_EXECUTIONS, lambda counts: counts.failed),
            (definitions.EXPIRED_EXECUTIONS, lambda counts: counts.expired),
            (definitions.REJECTED_BATCHES, lambda counts: counts.rejected),
            (definitions.REJECTED_SECONDS, lambda counts: counts.rejected_s),
        )
        for definition, number in numbers:
            yield Series(definition, {labels: number(counts) for labels, counts in counted.items()})
        yield Series(definitions.REPEATED_CALLS, repeated)

    def _pipelines(self) -> Iterator[Series]:
        counted = {(name, str(version)): counts for (name, version), counts in self._counts.pipelines.items()}
        outcomes = {
            (outcome, *labels): count
            for labels, counts in counted.items()
            for outcome, count in counts.outcomes.items()
        }
        yield Series(definitions.PIPELINE_REQUESTS, outcomes)
        yield Series(definitions.PIPELINE_SECONDS, {labels: counts.seconds for labels, counts in counted.items()})
        yield Series(definitions.PIPELINE_OVERHEAD, {labels: counts.overhead_s for labels, counts in counted.items()})

    def _steps(self) -> Iterator[Series]:
        counted: dict[Labels, StepCounts] = {
            (name, str(version), step): counts
            for (name, version), pipeline in self._counts.pipelines.items()
            for step, counts in pipeline.steps.items()
        }
        ended: dict[Labels, float] = {}
        for labels, counts in counted.items():
            ended["computed", *labels] = counts.computed
            ended["passed_over", *labels] = counts.passed_over
            ended["failed", *labels] = counts.failed
        yield Series(definitions.STEPS, ended)
        yield Series(definitions.STEP_ROWS, {labels: counts.rows for labels, counts in counted.items()})
        yield Series(definitions.STEP_QUEUE_SECONDS, {labels: counts.queue_s for labels, counts in counted.items()})
        yield Series(definitions.STEP_COMPUTE_SECONDS, {labels: counts.compute_s for labels, counts in counted.items()})

    def _shadow_check_results(self, functions: Sequence[_Function]) -> Series:
        counted: dict[Labels, float] = {
            (result, model, str(version), signature): 0
            for model, version, signature in functions
            for result in _SHADOW_RESULTS
        }
        return Series(definitions.SHADOW_CHECKS, {**counted, **self._shadow_checks})

    def _execution_variants(self) -> Series:
        speed_ups: dict[Labels, float] = {}
        for name, signatures in self._facts.variants.items():
            model, _, version = name.rpartition("/")
            for signature, sizes in signatures.items():
                for each in sizes:
                    labels = (model, version, signature, str(each["batch_size"]), each["variant"])
                    speed_ups[labels] = each["speed_up"]
        return Series(definitions.EXECUTION_VARIANT, speed_ups)

    def _row_proofs(self) -> Series:
        proofs: dict[Labels, float] = {}
        for name, signatures in self._facts.row_proofs.items():
            model, _, version = name.rpartition("/")
            for signature, proof in signatures.items():
                proofs[proof or "none", model, version, signature] = 1
        return Series(definitions.ROW_PROOF, proofs)

    def _model_placed(self, event: ModelPlaced) -> None:
        self._replicas[event.model, str(event.version)] = len(event.devices)

    def _model_improving(self, event: ModelImproving) -> None:
        self._improving[event.model, str(event.version)] = bool(event.step)

    def _shadow_checked(self, event: ShadowChecked) -> None:
        self._shadow_checks[event.result, event.model, str(event.version), event.signature] += 1

    def _rows_tried(self, event: RowsTried) -> None:
        function = event.model, str(event.version), event.signature
        self._row_trials[event.result, *function] += 1
        self._row_trial_s[function] += event.seconds

    def _connections_rejected(self, event: ConnectionsRejected) -> None:
        self._rejected_connections[event.reason] += event.number

    def _requests_refused(self, event: RequestsRefused) -> None:
        self._refused_requests[event.cause] += event.number

    def _requests_denied(self, event: RequestsDenied) -> None:
        self._denied_requests[event.reason] += event.number

    def _log_lines_dropped(self, event: LogLinesDropped) -> None:
        self._dropped_lines += event.number

    def _access_denied(self, event: AccessDenied) -> None:
        self._denied_requests[event.reason] += 1

    def _credentials_loaded(self, event: CredentialsLoaded) -> None:
        self._credential_loads[event.source, event.result] += 1

    def _model_state_changed(self, event: ModelStateChanged) -> None:
        self._loads.model_state_changed(event)
        if event.state == "END":
            version = event.model, str(event.version)
            _forget(self._shadow_checks, version, 1)
            _forget(self._row_trials, version, 1)
            _forget(self._row_trial_s, version, 0)
            self._replicas.pop(version, None)
            self._improving.pop(version, None)


def _forget(counts: dict[Any, Any], version: tuple[str, str], place: int) -> None:
    """Delete the counts of a version, whose name and number stand at this place of the labels."""
    for labels in [each for each in counts if each[place : place + 2] == version]:
        del counts[labels]


def _counted(definition: MetricDefinition, counts: Mapping[str, int]) -> Series:
    """A counter with one label."""
    return Series(definition, {(label,): count for label, count in counts.items()})
