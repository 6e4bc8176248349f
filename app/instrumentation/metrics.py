"""Ferry's Prometheus page. It is written when it is asked for: from the counts, the facts, and the queue's length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from app.core.events import (
    ConnectionsRejected,
    ModelImproving,
    ModelPlaced,
    ModelStateChanged,
    ShadowChecked,
    Subscriptions,
)
from app.core.versions import ModelProblem
from app.instrumentation import metric_definitions as definitions
from app.instrumentation.counts import BatchCounts, Counts
from app.instrumentation.histogram import SECONDS, Histogram, Labels, histogram_family, merge_histograms
from app.instrumentation.metric_definitions import MetricDefinition
from app.instrumentation.model_facts import ModelFacts
from app.instrumentation.pipeline_counts import StepCounts
from app.runtime import CompiledPrograms

CONTENT_TYPE = CONTENT_TYPE_LATEST

_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics(Collector):
    """All metrics of metric_definitions.py, in a registry of their own.

    `queue_rows` asks how many rows wait now, `problems` which models do not work, `programs` what was compiled,
    `memory` how many bytes of the budget are held for what; `memory_budget` is all of it.
    """

    def __init__(
        self,
        counts: Counts,
        facts: ModelFacts,
        queue_rows: Callable[[], int],
        problems: Callable[[], Sequence[ModelProblem]] = tuple,
        programs: Callable[[], CompiledPrograms | None] = lambda: None,
        *,
        memory: Callable[[], Mapping[str, int]] = dict,
        memory_budget: int = 0,
    ) -> None:
        self._memory = memory
        self._counts = counts
        self._facts = facts
        self._shadow_checks = Counter[tuple[str, str, str, str]]()
        self._rejected_connections = Counter({"full": 0, "address": 0, "gave_way": 0})
        self._problems = problems
        self._programs = programs
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._replicas = self._gauge(definitions.REPLICAS)
        self._improving = self._gauge(definitions.IMPROVING)
        self._gauge(definitions.QUEUE_ROWS).set_function(queue_rows)
        self._gauge(definitions.MEMORY_BUDGET_BYTES).set(memory_budget)
        self.subscriptions: Subscriptions = {
            ModelPlaced: self._model_placed,
            ModelImproving: self._model_improving,
            ShadowChecked: self._shadow_checked,
            ConnectionsRejected: self._connections_rejected,
            ModelStateChanged: self._model_state_changed,
        }

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The counted metrics, as prometheus_client asks for them."""
        yield from self._requests()
        yield from self._batches()
        yield from self._pipelines()
        yield from self._steps()
        checks = _counter(definitions.SHADOW_CHECKS)
        for labels, count in self._shadow_checks.copy().items():
            checks.add_metric(labels, count)
        yield checks
        rejected = _counter(definitions.REJECTED_CONNECTIONS)
        for reason, count in self._rejected_connections.items():
            rejected.add_metric((reason,), count)
        yield rejected
        yield self._execution_variants()
        yield self._model_problems()
        yield self._held_memory()
        yield from self._compiled_programs()

    def _gauge(self, definition: MetricDefinition) -> Gauge:
        return Gauge(definition.name, definition.help, definition.labels, registry=self._registry)

    def _requests(self) -> Iterator[Metric]:
        counted = [
            (protocol, code, (model, str(version), signature), seconds)
            for (protocol, code, model, version, signature), seconds in self._counts.requests.copy().items()
        ]
        requests = _counter(definitions.REQUESTS)
        for protocol, code, function, seconds in counted:
            requests.add_metric((protocol, code, *function), seconds.count)
        yield requests

        over_codes = merge_histograms(((protocol, *function), seconds) for protocol, _, function, seconds in counted)
        yield _histogram(definitions.REQUEST_SECONDS, over_codes)

    def _batches(self) -> Iterator[Metric]:
        counted: dict[Labels, BatchCounts] = {
            (model, str(version), signature): counts
            for (model, version, signature), counts in self._counts.batches.copy().items()
        }
        yield _histogram(definitions.QUEUE_SECONDS, {labels: counts.queue_s for labels, counts in counted.items()})
        yield _histogram(definitions.COMPUTE_SECONDS, {labels: counts.compute_s for labels, counts in counted.items()})
        rows = {labels: counts.rows(_ROWS) for labels, counts in counted.items()}
        yield _histogram(definitions.BATCH_ROWS, rows, _ROWS)

        batches, padded_rows = _counter(definitions.BATCHES), _counter(definitions.PADDED_ROWS)
        failed, expired = _counter(definitions.FAILED_EXECUTIONS), _counter(definitions.EXPIRED_EXECUTIONS)
        rejected, rejected_s = _counter(definitions.REJECTED_BATCHES), _counter(definitions.REJECTED_SECONDS)
        for labels, counts in counted.items():
            for reason, calls in counts.closed_by().items():
                batches.add_metric((reason, *labels), calls)
            padded_rows.add_metric(labels, counts.padded_rows())
            failed.add_metric(labels, counts.failed)
            expired.add_metric(labels, counts.expired)
            rejected.add_metric(labels, counts.rejected)
            rejected_s.add_metric(labels, counts.rejected_s)
        yield from (batches, padded_rows, failed, expired, rejected, rejected_s)

    def _pipelines(self) -> Iterator[Metric]:
        requests, overhead_s = _counter(definitions.PIPELINE_REQUESTS), _counter(definitions.PIPELINE_OVERHEAD)
        seconds: dict[Labels, Histogram] = {}
        for (name, version), counts in self._counts.pipelines.copy().items():
            labels = name, str(version)
            for outcome, count in counts.outcomes.copy().items():
                requests.add_metric((outcome, *labels), count)
            overhead_s.add_metric(labels, counts.overhead_s)
            seconds[labels] = counts.seconds
        yield from (requests, _histogram(definitions.PIPELINE_SECONDS, seconds), overhead_s)

    def _steps(self) -> Iterator[Metric]:
        counted: dict[Labels, StepCounts] = {
            (name, str(version), step): counts
            for (name, version), pipeline in self._counts.pipelines.copy().items()
            for step, counts in pipeline.steps.copy().items()
        }
        ended, rows = _counter(definitions.STEPS), _counter(definitions.STEP_ROWS)
        for labels, counts in counted.items():
            results = {"computed": counts.computed, "passed_over": counts.passed_over, "failed": counts.failed}
            for result, count in results.items():
                ended.add_metric((result, *labels), count)
            rows.add_metric(labels, counts.rows)
        queue_s = {labels: counts.queue_s for labels, counts in counted.items()}
        compute_s = {labels: counts.compute_s for labels, counts in counted.items()}
        yield from (ended, rows)
        yield _histogram(definitions.STEP_QUEUE_SECONDS, queue_s)
        yield _histogram(definitions.STEP_COMPUTE_SECONDS, compute_s)

    def _execution_variants(self) -> Metric:
        definition = definitions.EXECUTION_VARIANT
        gauge = GaugeMetricFamily(definition.name, definition.help, labels=definition.labels)
        for name, signatures in self._facts.variants.copy().items():
            model, _, version = name.rpartition("/")
            for signature, sizes in signatures.copy().items():
                for each in sizes:
                    labels = (model, version, signature, str(each["batch_size"]), each["variant"])
                    gauge.add_metric(labels, each["speed_up"])
        return gauge

    def _model_problems(self) -> Metric:
        definition = definitions.MODEL_PROBLEM
        gauge = GaugeMetricFamily(definition.name, definition.help, labels=definition.labels)
        for labels in sorted({(each.model, str(each.version or 0), str(each.kind)) for each in self._problems()}):
            gauge.add_metric(labels, 1)
        return gauge

    def _held_memory(self) -> Metric:
        definition = definitions.MEMORY_BYTES
        gauge = GaugeMetricFamily(definition.name, definition.help, labels=definition.labels)
        for held_for, size in self._memory().items():
            gauge.add_metric((held_for,), size)
        return gauge

    def _compiled_programs(self) -> Iterator[Metric]:
        programs = self._programs()
        if programs is not None:
            for definition, value in (
                (definitions.COMPILED_PROGRAMS, programs.number),
                (definitions.COMPILED_PROGRAMS_LIMIT, programs.limit),
            ):
                yield GaugeMetricFamily(definition.name, definition.help, value)

    def _model_placed(self, event: ModelPlaced) -> None:
        self._replicas.labels(event.model, event.version).set(len(event.devices))

    def _model_improving(self, event: ModelImproving) -> None:
        self._improving.labels(event.model, event.version).set(bool(event.step))

    def _shadow_checked(self, event: ShadowChecked) -> None:
        self._shadow_checks[event.result, event.model, str(event.version), event.signature] += 1

    def _connections_rejected(self, event: ConnectionsRejected) -> None:
        self._rejected_connections[event.reason] += event.number

    def _model_state_changed(self, event: ModelStateChanged) -> None:
        if event.state == "END":
            for gauge in (self._replicas, self._improving):
                gauge.remove_by_labels({"model": event.model, "version": str(event.version)})


def _counter(definition: MetricDefinition) -> CounterMetricFamily:
    return CounterMetricFamily(definition.name, definition.help, labels=definition.labels)


def _histogram(
    definition: MetricDefinition, histograms: Mapping[Labels, Histogram], bounds: tuple[float, ...] = SECONDS
) -> Metric:
    return histogram_family(definition.name, definition.help, definition.labels, histograms, bounds=bounds)
