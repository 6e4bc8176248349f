"""Spans of batches, linked to the spans of the traced requests that they served.

BatchExecuted comes after the RequestTraced of a request that is answered at once, and before that of a request that a
task or a frontend answers. Both events name the model, its version, the signature and the seconds of the call (the same
float): the BatchKey.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from opentelemetry.trace import Link, SpanContext, TraceFlags

from app.core.bounded_cache import BoundedCache
from app.core.events import BatchExecuted, RequestTraced, Subscriptions
from app.instrumentation.tracing.spans import Spans

#: Model, version, signature and the seconds of the call.
BatchKey = tuple[str, int, str, float]

#: The most batches that wait for a traced request, and the most that traced requests wait for. Chosen: a frontend sends
#: its events within 0.2 s, and the fastest engines execute some 20,000 batches a second: 4,000 meanwhile.
_MOST = 4096

#: The seconds in which the span of a batch waits for the answers of further requests. Chosen: long replies take less to
#: write.
_OPEN_S = 1.0

#: The most links of a batch's span. Source: OpenTelemetry's default (OTEL_SPAN_LINK_COUNT_LIMIT).
_MOST_LINKS = 128


class _Batch(NamedTuple):
    """A batch: its attributes, and its end in nanoseconds since 1970."""

    rows: int
    padded_rows: int
    requests: int
    reason: str
    ended: int


class BatchSpans:
    """The spans of batches that served traced requests. Used on the event loop."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        #: The last batches of which no request was traced so far; most never have one.
        self._untraced: BoundedCache[BatchKey, _Batch] = BoundedCache(_MOST)
        #: The `compute` spans of requests whose batch's event has not come yet.
        self._computed: BoundedCache[BatchKey, list[SpanContext]] = BoundedCache(_MOST)
        #: Batches whose spans may get more links.
        self._open: dict[BatchKey, tuple[_Batch, list[SpanContext]]] = {}

    @property
    def subscriptions(self) -> Subscriptions:
        return {BatchExecuted: self.executed, RequestTraced: self._request_traced}

    def executed(self, event: BatchExecuted) -> None:
        key = event.model, event.version, event.signature, event.compute_s
        # The event has no time of its own: the batch ended when it arrived.
        batch = _Batch(event.rows, event.padded_rows, len(event.queue_s), event.reason, time.time_ns())
        requests = self._computed.pop(key, None) if self._computed else None
        if requests is None:
            self._untraced.keep(key, batch)
        else:
            self._begin(key, batch, requests)

    def computed(self, key: BatchKey, request: SpanContext) -> None:
        """Link a traced request to the batch of this key. `request`: the context of its span `compute`."""
        if key in self._open:
            self._open[key][1].append(request)
        elif key in self._computed:
            self._computed[key].append(request)
        elif (batch := self._untraced.pop(key, None)) is not None:
            self._begin(key, batch, [request])
        else:
            self._computed.keep(key, [request])

    def _request_traced(self, event: RequestTraced) -> None:
        if event.compute_span_id:
            trace_id, span_id = int(event.trace_id, 16), int(event.compute_span_id, 16)
            span = SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
            self.computed((*event[1:4], event.compute_s), span)

    def close(self) -> None:
        """End the spans that wait for more requests."""
        for key in list(self._open):
            self._end(key)

    def _begin(self, key: BatchKey, batch: _Batch, requests: list[SpanContext]) -> None:
        self._open[key] = batch, requests
        asyncio.get_running_loop().call_later(_OPEN_S, self._end, key)

    def _end(self, key: BatchKey) -> None:
        if key not in self._open:
            return
        batch, requests = self._open.pop(key)
        model, version, signature, seconds = key
        attributes: dict[str, str | int] = {
            "ferry.model": model,
            "ferry.model.version": version,
            "ferry.signature": signature,
            "ferry.batch.rows": batch.rows,
            "ferry.batch.padded_rows": batch.padded_rows,
            "ferry.batch.requests": batch.requests,
            "ferry.batch.reason": batch.reason,
        }
        links = [Link(each) for each in requests[:_MOST_LINKS]]
        start = batch.ended - int(1e9 * seconds)
        self._spans.add("batch", start, batch.ended, attributes=attributes, links=links)
