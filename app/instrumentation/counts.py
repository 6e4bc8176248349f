"""Counts of requests and batches, from which all pages of metrics and the statistics are written.

It is called for each request, so it only counts: labels, names and units are added by the pages.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial

from app.core.events import (
    BatchExecuted,
    BatchRejected,
    ModelStateChanged,
    PipelineEnded,
    RequestFinished,
    RequestsFinished,
    Subscriptions,
)
from app.core.versions import VersionState
from app.instrumentation.histogram import BOUNDS, Histogram
from app.instrumentation.pipeline_counts import PipelineCounts

#: Ended versions of a model whose counts are kept. Chosen.
_ENDED_KEPT = 4


class BatchCounts:
    """Counts of one signature of one version.

    calls: batches by their real rows, padded rows and the reason that closed them.
    queue_s: seconds that each request waited; compute_s: seconds that each batch took.
    wasted_s: the part of compute_s that was spent on padding.
    failed: requests that were answered with an error; expired: requests that were computed after their deadline.
    rejected: calls whose requests were run again in smaller groups; rejected_s: their seconds.
    """

    def __init__(self) -> None:
        self.calls: Counter[tuple[int, int, str]] = Counter()
        self.queue_s = Histogram(BOUNDS)
        self.compute_s = Histogram(BOUNDS)
        self.wasted_s = 0.0
        self.failed = self.expired = self.rejected = 0
        self.rejected_s = 0.0

    def since(self, before: BatchCounts) -> BatchCounts:
        """The difference to `before`, an earlier copy of these counts."""
        later = BatchCounts()
        later.calls = self.calls - before.calls
        later.queue_s = self.queue_s.since(before.queue_s)
        later.compute_s = self.compute_s.since(before.compute_s)
        later.wasted_s = self.wasted_s - before.wasted_s
        later.failed, later.expired = self.failed - before.failed, self.expired - before.expired
        later.rejected, later.rejected_s = self.rejected - before.rejected, self.rejected_s - before.rejected_s
        return later

    def closed_by(self) -> Counter[str]:
        reasons: Counter[str] = Counter()
        for (_, _, reason), calls in self.calls.copy().items():
            reasons[reason] += calls
        return reasons

    def padded_rows(self) -> int:
        return sum(padded_rows * calls for (_, padded_rows, _), calls in self.calls.copy().items())

    def rows(self, bounds: tuple[int, ...], *, padded: bool = False) -> Histogram:
        """How many rows the batches had, with or without padding rows."""
        rows = Histogram(bounds)
        for (real_rows, padded_rows, _), calls in self.calls.copy().items():
            rows.observe(real_rows + padded_rows * padded, calls)
        return rows


class Counts:
    """A subscriber that counts requests, batches and what goes through pipelines.

    requests: seconds from arrival to answer, by protocol, code, model, version and signature.
    batches: by model, version and signature.
    pipelines: by name and version.

    The counts of a version that has ended are kept until several later ones of its model have ended, too: a page shows
    its last requests, and versions that come and go take no memory.
    """

    def __init__(self) -> None:
        self.requests: defaultdict[tuple[str, str, str, int, str], Histogram] = defaultdict(partial(Histogram, BOUNDS))
        self.batches: defaultdict[tuple[str, int, str], BatchCounts] = defaultdict(BatchCounts)
        self.pipelines: defaultdict[tuple[str, int], PipelineCounts] = defaultdict(PipelineCounts)
        self.subscriptions: Subscriptions = {
            RequestFinished: self._request_finished,
            RequestsFinished: self._requests_finished,
            BatchExecuted: self._batch_executed,
            BatchRejected: self._batch_rejected,
            PipelineEnded: self._pipeline_ended,
            ModelStateChanged: self._model_state_changed,
        }
        self._ended: defaultdict[str, dict[int, None]] = defaultdict(dict)  # by model, its ended versions in order

    def _request_finished(self, event: RequestFinished) -> None:
        self.requests[event[:5]].observe(event.seconds)

    def _requests_finished(self, event: RequestsFinished) -> None:
        self.requests[event[:5]].observe_all(event.seconds)

    def _batch_executed(self, event: BatchExecuted) -> None:
        counts = self.batches[event[:3]]
        counts.calls[event.rows, event.padded_rows, event.reason] += 1
        counts.queue_s.observe_all(event.queue_s)
        counts.compute_s.observe(event.compute_s)
        counts.wasted_s += event.padding_ratio * event.compute_s
        counts.failed += event.failed
        counts.expired += event.expired

    def _pipeline_ended(self, event: PipelineEnded) -> None:
        self.pipelines[event[:2]].add(event)

    def _model_state_changed(self, event: ModelStateChanged) -> None:
        ended = self._ended[event.model]
        ended.pop(event.version, None)
        if event.state == VersionState.END:
            ended[event.version] = None
            if len(ended) > _ENDED_KEPT:
                oldest = next(iter(ended))
                del ended[oldest]
                self._forget(event.model, oldest)

    def _forget(self, model: str, version: int) -> None:
        for request in [each for each in self.requests if each[2:4] == (model, version)]:
            del self.requests[request]
        for batch in [each for each in self.batches if each[:2] == (model, version)]:
            del self.batches[batch]
        self.pipelines.pop((model, version), None)

    def _batch_rejected(self, event: BatchRejected) -> None:
        counts = self.batches[event[:3]]
        counts.rejected += 1
        counts.rejected_s += event.compute_s
