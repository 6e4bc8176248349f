"""Counts of requests and batches, from which all pages of metrics and the statistics are written.

A count costs each request little: labels, names and units are added by the pages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TypeVar

from app.core.events import (
    BatchExecuted,
    BatchRejected,
    CallRepeated,
    ModelStateChanged,
    PipelineEnded,
    RequestFinished,
    RequestsFinished,
    Subscriptions,
)
from app.core.versions import VersionState
from app.instrumentation.histogram import BOUNDS, Histogram
from app.instrumentation.pipeline_counts import PipelineCounts
from app.instrumentation.totals import Totals

Key = TypeVar("Key")
Value = TypeVar("Value")

#: The name of a model and the number of a version.
Version = tuple[str, int]

#: The most ended versions of a model, and of all models together, that are remembered. Chosen.
_ENDED_OF_MODEL, _ENDED = 4, 64


class BatchCounts(Totals):
    """Counts of one signature of one version.

    calls: batches by their real rows, padded rows and the reason that closed them.
    queue_s, compute_s: seconds that a request waited, and that a batch took.
    wasted_s: the part of compute_s that was spent on padding.
    failed, expired: requests that were answered with an error, and requests that were computed after their deadline.
    rejected, rejected_s: calls whose requests were run again in smaller groups, and their seconds.
    repeated: calls made because another one was rejected, by reason; see CallRepeated.
    """

    def __init__(self) -> None:
        self.calls: Counter[tuple[int, int, str]] = Counter()
        self.queue_s = Histogram(BOUNDS)
        self.compute_s = Histogram(BOUNDS)
        self.wasted_s = 0.0
        self.failed = self.expired = self.rejected = 0
        self.rejected_s = 0.0
        self.repeated: Counter[str] = Counter()

    def closed_by(self) -> Counter[str]:
        reasons: Counter[str] = Counter()
        for (_, _, reason), calls in self.calls.copy().items():
            reasons[reason] += calls
        return reasons

    def padded_rows(self) -> int:
        return sum(padded_rows * calls for (_, padded_rows, _), calls in self.calls.copy().items())

    def rows(self, bounds: tuple[int, ...], *, padded: bool = False) -> Histogram:
        """The batches by their rows, with or without padding rows."""
        rows = Histogram(bounds)
        for (real_rows, padded_rows, _), calls in self.calls.copy().items():
            rows.observe(real_rows + padded_rows * padded, calls)
        return rows


class VersionLives:
    """The living versions, from their first state to END, and the versions that ended last.

    So names and versions that come and go take no memory.
    """

    def __init__(self) -> None:
        self._living: set[Version] = set()
        self._ended: dict[Version, None] = {}  # the oldest first

    def __contains__(self, version: Version) -> bool:
        return version in self._living or version in self._ended

    def has_model(self, name: str) -> bool:
        return any(name == each for each, _ in (*self._living, *self._ended))

    def changed(self, event: ModelStateChanged) -> list[Version]:
        """Note the state of a version. Returns the ended versions that are not remembered any more."""
        version = event.model, event.version
        if event.state != VersionState.END:
            self._living.add(version)
            self._ended.pop(version, None)
            return []
        self._living.discard(version)
        self._ended.pop(version, None)
        return self._remember(version)

    def seen(self, version: Version) -> list[Version]:
        """Note a version that an event names: if it is unknown, it has ended. Returns as `changed`."""
        return [] if version in self else self._remember(version)

    def _remember(self, version: Version) -> list[Version]:
        self._ended[version] = None
        forgotten = [each for each in self._ended if each[0] == version[0]][:-_ENDED_OF_MODEL]
        forgotten += [each for each in self._ended if each not in forgotten][:-_ENDED]
        for each in forgotten:
            del self._ended[each]
        return forgotten


class _ByVersion(dict[Key, Value]):
    """A dict of counts that makes missing ones, and finds its entries by their versions, too.

    Args:
        make: makes the counts of a new key.
        version_of: the version in a key.
        seen: called with the version before counts are made.
    """

    def __init__(
        self, make: Callable[[], Value], version_of: Callable[[Key], Version], seen: Callable[[Version], None]
    ) -> None:
        super().__init__()
        self._make = make
        self._version_of = version_of
        self._seen = seen
        self._by_version: dict[Version, dict[Key, Value]] = {}

    def __missing__(self, key: Key) -> Value:
        version = self._version_of(key)
        self._seen(version)
        value = self[key] = self._make()
        self._by_version.setdefault(version, {})[key] = value
        return value

    def of(self, version: Version) -> Mapping[Key, Value]:
        """The entries of a version."""
        return self._by_version.get(version, {})

    def forget(self, version: Version) -> Mapping[Key, Value]:
        """Remove the entries of a version, and return them."""
        forgotten = self._by_version.pop(version, {})
        for key in forgotten:
            del self[key]
        return forgotten


class Counts:
    """A subscriber that counts requests, batches and requests of pipelines.

    requests: seconds from arrival to answer, by protocol, code, model, version and signature.
    batches: by model, version and signature.
    pipelines: by name and version.
    versions: the living versions, and those that ended last: their counts are kept, so a page shows their last
        requests, and names and versions that come and go take no memory.
    past_requests, past_batches: of forgotten versions of models that still have others: by protocol, code and model
        for all signatures, and by model. With them the counts of a model never fall.
    """

    def __init__(self) -> None:
        self.versions = VersionLives()
        self.requests = _ByVersion[tuple[str, str, str, int, str], Histogram](
            partial(Histogram, BOUNDS), lambda key: key[2:4], self._seen
        )
        self.batches = _ByVersion[tuple[str, int, str], BatchCounts](BatchCounts, lambda key: key[:2], self._seen)
        self.past_requests: dict[tuple[str, str, str], Histogram] = {}
        self.past_batches: dict[str, BatchCounts] = {}
        self.pipelines = _ByVersion[Version, PipelineCounts](PipelineCounts, lambda key: key, self._seen)
        self.subscriptions: Subscriptions = {
            RequestFinished: self._request_finished,
            RequestsFinished: self._requests_finished,
            BatchExecuted: self._batch_executed,
            BatchRejected: self._batch_rejected,
            CallRepeated: self._call_repeated,
            PipelineEnded: self._pipeline_ended,
            ModelStateChanged: self._model_state_changed,
        }

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

    def _seen(self, version: Version) -> None:
        """Counts of a version begin, perhaps after its end: frontends send events of its last requests later."""
        if version[0]:  # empty for requests that reached no model
            self._forget(self.versions.seen(version))

    def _model_state_changed(self, event: ModelStateChanged) -> None:
        self._forget(self.versions.changed(event))

    def _forget(self, versions: Collection[Version]) -> None:
        for version in versions:
            model, _ = version
            for request, seconds in self.requests.forget(version).items():
                if request[4]:
                    past_s = self.past_requests.get(request[:3], Histogram(BOUNDS))
                    self.past_requests[request[:3]] = past_s + seconds
            for counts in self.batches.forget(version).values():
                self.past_batches[model] = self.past_batches.get(model, BatchCounts()) + counts
            self.pipelines.forget(version)
            if not self.versions.has_model(model):
                self.past_batches.pop(model, None)
                for past in [each for each in self.past_requests if each[2] == model]:
                    del self.past_requests[past]

    def _batch_rejected(self, event: BatchRejected) -> None:
        counts = self.batches[event[:3]]
        counts.rejected += 1
        counts.rejected_s += event.compute_s

    def _call_repeated(self, event: CallRepeated) -> None:
        self.batches[event[:3]].repeated[event.why] += 1
