"""Statistics of each model version since it was loaded, in the form of Triton's statistics extension."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from app.core.events import BatchExecuted, ModelStateChanged, PipelineEnded, Subscriptions
from app.instrumentation.counts import Counts

_SUCCESS = frozenset({"200", "OK"})


@dataclass(slots=True)
class _Duration:
    """A count of events, and their total time."""

    count: int = 0
    seconds: float = 0.0

    def add(self, count: int, seconds: float) -> None:
        self.count += count
        self.seconds += seconds

    def since(self, before: _Duration) -> _Duration:
        return _Duration(self.count - before.count, self.seconds - before.seconds)

    def document(self) -> dict[str, int]:
        return {"count": self.count, "ns": round(self.seconds * 1e9)}


@dataclass(slots=True)
class _Compute:
    """A count of computations, and the total seconds of joining inputs, of the calls, and of separating outputs."""

    count: int = 0
    input_s: float = 0.0
    infer_s: float = 0.0
    output_s: float = 0.0

    def add(self, batch: BatchExecuted, count: int) -> None:
        self.count += count
        self.input_s += batch.input_s * count
        self.output_s += batch.output_s * count
        self.infer_s += (batch.compute_s - batch.input_s - batch.output_s) * count

    def documents(self) -> dict[str, dict[str, int]]:
        parts = {"compute_input": self.input_s, "compute_infer": self.infer_s, "compute_output": self.output_s}
        return {name: _Duration(self.count, seconds).document() for name, seconds in parts.items()}


#: Requests that succeeded and those that failed.
_Answered = tuple[_Duration, _Duration]


@dataclass(slots=True)
class _VersionCounts:
    """Counts of one model version since it was loaded. `answered_before`: requests answered before that."""

    answered_before: _Answered = field(default_factory=lambda: (_Duration(), _Duration()))
    last_inference_ms: int = 0
    rows: int = 0
    executions: int = 0
    queue: _Duration = field(default_factory=_Duration)
    compute: _Compute = field(default_factory=_Compute)
    batches: defaultdict[int, _Compute] = field(default_factory=lambda: defaultdict(_Compute))


class ModelStatistics:
    """Counts batches, and reads from `requests` how requests were answered since the version was loaded.

    success, fail: requests to compute something, over all protocols, by their answer; from arrival to answer.
    inference_count: rows computed without an error.
    execution_count: batches, and batch_stats the same by their rows.
    queue, compute_input, compute_infer, compute_output: one for each request, with the whole time that its batch took
        to be put together, computed and taken apart; a request larger than a batch counts once for each part. Failed
        requests are in queue only. Of requests that run alone nothing is put together or taken apart.
    cache_hit, cache_miss: always 0, because there is no cache.

    Ended versions are remembered as long as by `requests`, which has to subscribe before this.

    An execution of a pipeline is an answered request, and its compute_infer the time of the longest way. A pipeline has
    no batches, as calls are those of its models.
    """

    def __init__(self, requests: Counts, clock: Callable[[], float] = time.time) -> None:
        self._requests = requests
        self._clock = clock
        self._counts: defaultdict[tuple[str, int], _VersionCounts] = defaultdict(_VersionCounts)
        self.subscriptions: Subscriptions = {
            BatchExecuted: self._batch_executed,
            PipelineEnded: self._pipeline_ended,
            ModelStateChanged: self._model_state_changed,
        }

    def document(self, model: str, version: int) -> dict[str, Any]:
        """The entry of a version in `model_stats`; zeros for a version that never ran."""
        counts = self._counts.get((model, version)) or _VersionCounts()
        answered = zip(self._answered(model, version), counts.answered_before, strict=True)
        success, fail = (every.since(before) for every, before in answered)
        return {
            "name": model,
            "version": str(version),
            "last_inference": counts.last_inference_ms,
            "inference_count": counts.rows,
            "execution_count": counts.executions,
            "inference_stats": {
                "success": success.document(),
                "fail": fail.document(),
                "queue": counts.queue.document(),
                **counts.compute.documents(),
                "cache_hit": _Duration().document(),
                "cache_miss": _Duration().document(),
            },
            "response_stats": {},
            "batch_stats": [
                {"batch_size": rows, **compute.documents()} for rows, compute in sorted(counts.batches.items())
            ],
            "memory_usage": [],
        }

    def _answered(self, model: str, version: int) -> _Answered:
        """The requests answered since the process began, over all loads of the version."""
        success, fail = _Duration(), _Duration()
        for (_, code, _, _, signature), seconds in self._requests.requests.of((model, version)).items():
            if signature:
                (success if code in _SUCCESS else fail).add(seconds.count, seconds.total)
        return success, fail

    def _batch_executed(self, event: BatchExecuted) -> None:
        counts = self._counts[event.model, event.version]
        requests = len(event.queue_s)
        computed = requests - event.failed
        counts.last_inference_ms = int(self._clock() * 1e3)
        counts.executions += 1
        counts.queue.add(requests, sum(event.queue_s))
        if computed:
            counts.rows += event.rows - event.failed_rows
            counts.compute.add(event, computed)
            counts.batches[event.rows].add(event, 1)

    def _pipeline_ended(self, event: PipelineEnded) -> None:
        if event.outcome == "answered":
            counts = self._counts[event.pipeline, event.version]
            counts.last_inference_ms = int(self._clock() * 1e3)
            requests = event.requests
            counts.executions += requests
            counts.rows += event.rows
            counts.queue.add(requests, event.timing.queue_s * requests)
            counts.compute.count += requests
            counts.compute.infer_s += event.timing.compute_s * requests

    def _model_state_changed(self, event: ModelStateChanged) -> None:
        if event.state in {"LOADING", "END"}:
            life = event.model, event.version
            self._counts[life] = _VersionCounts(self._answered(*life))
            for forgotten in [each for each in self._counts if each not in self._requests.versions]:
                del self._counts[forgotten]
