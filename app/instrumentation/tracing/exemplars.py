"""Exemplars: for each bucket of a function's seconds, the trace of the last request in it.

A dashboard leads from a slow bucket to the trace of a request that was as slow. Only OpenMetrics has them.
Source: OpenMetrics 1.0, "Exemplars": at most 128 characters of labels.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from prometheus_client.samples import Exemplar

from app.core.bounded_cache import BoundedCache
from app.core.events import RequestTraced, Subscriptions
from app.instrumentation.histogram import SECONDS, Labels

#: The most functions with exemplars. Chosen.
_MOST_FUNCTIONS = 1000


class Exemplars:
    """The exemplars of ferry_request_seconds."""

    def __init__(self) -> None:
        self._kept: BoundedCache[Labels, dict[int, Exemplar]] = BoundedCache(_MOST_FUNCTIONS)
        self.subscriptions: Subscriptions = {RequestTraced: self._request_traced}

    def of(self, labels: Labels) -> Mapping[int, Exemplar]:
        """The exemplars of a function, by the number of the bucket of SECONDS; the last bucket has no bound."""
        return self._kept.get(labels, {})

    def _request_traced(self, event: RequestTraced) -> None:
        labels = event.protocol, event.model, str(event.version), event.signature
        buckets = self._kept.get(labels)
        if buckets is None:
            buckets = self._kept.keep(labels, {})
        trace = {"trace_id": event.trace_id, "span_id": event.span_id}
        buckets[bisect_left(SECONDS, event.seconds)] = Exemplar(trace, event.seconds, event.ended_at)
