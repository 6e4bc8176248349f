"""Spans of batches, linked to the spans of the traced requests that they served.

The event of a batch comes after answers on the event loop, and before answers of a task or a frontend. A batch and its
requests know each other by the model, the signature and the seconds of the call, which are the same number in both.
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

#: The most batches, and calls, that wait for each other. Chosen: the events of a frontend come within 50 ms, in which
#: some thousand small calls end.
_MOST = 4096

#: The seconds in which the span of a batch waits for the answers of further requests. Chosen: long replies take less to
#: write.
_OPEN_S = 1.0

#: Links of a batch's span. Source: OpenTelemetry's default (OTEL_SPAN_LINK_COUNT_LIMIT).
_MOST_LINKS = 128


class _Executed(NamedTuple):
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
        #: The last batches without a traced request so far, as most are.
        self._executed: BoundedCache[BatchKey, _Executed] = BoundedCache(_MOST)
        #: The `compute` spans of requests whose batch's event has not come yet.
        self._computed: BoundedCache[BatchKey, list[SpanContext]] = BoundedCache(_MOST)
        #: Batches whose spans may get more links.
        self._open: dict[BatchKey, tuple[_Executed, list[SpanContext]]] = {}

    @property
    def subscriptions(self) -> Subscriptions:
        return {BatchExecuted: self.executed, RequestTraced: self._request_traced}

    def executed(self, batch: BatchExecuted) -> None:
        key = batch.model, batch.version, batch.signature, batch.compute_s
        executed = _Executed(batch.rows, batch.padded_rows, len(batch.queue_s), batch.reason, time.time_ns())
        requests = self._computed.pop(key, None) if self._computed else None
        if requests is None:
            self._executed.keep(key, executed)
        else:
            self._begin(key, executed, requests)

    def computed(self, key: BatchKey, request: SpanContext) -> None:
        """Link a traced request to the batch of this key. `request`: the span `compute`."""
        if key in self._open:
            self._open[key][1].append(request)
        elif key in self._computed:
            self._computed[key].append(request)
        elif (executed := self._executed.pop(key, None)) is not None:
            self._begin(key, executed, [request])
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

    def _begin(self, key: BatchKey, executed: _Executed, requests: list[SpanContext]) -> None:
        self._open[key] = executed, requests
        asyncio.get_running_loop().call_later(_OPEN_S, self._end, key)

    def _end(self, key: BatchKey) -> None:
        if key not in self._open:
            return
        executed, requests = self._open.pop(key)
        model, version, signature, seconds = key
        attributes: dict[str, str | int] = {
            "ferry.model": model,
            "ferry.model.version": version,
            "ferry.signature": signature,
            "ferry.batch.rows": executed.rows,
            "ferry.batch.padded_rows": executed.padded_rows,
            "ferry.batch.requests": executed.requests,
            "ferry.batch.reason": executed.reason,
        }
        links = [Link(each) for each in requests[:_MOST_LINKS]]
        start = executed.ended - int(1e9 * seconds)
        self._spans.add("batch", start, executed.ended, attributes=attributes, links=links)
