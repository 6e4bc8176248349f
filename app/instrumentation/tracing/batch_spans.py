"""Spans of batches, each linked to the spans of the traced requests that it served.

A batch's event comes after the answers that are given at once, and before those that a task gives. The two know each
other by the model, the signature and the seconds of the call, which are one and the same number.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import NamedTuple

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, Tracer

from app.core.bounded_cache import BoundedCache
from app.core.events import BatchExecuted, Subscriptions

#: Model, version, signature and the seconds of the call.
BatchKey = tuple[str, int, str, float]

#: Batches and calls that may wait for each other. Chosen: more than end within some turns of the event loop.
_MOST = 64

#: How long the span of a batch waits for the answers of further requests. Chosen: long replies take less to write.
_OPEN_S = 1.0


class _Executed(NamedTuple):
    """A batch, and when it ended: nanoseconds since 1970."""

    batch: BatchExecuted
    ended: int

    @property
    def key(self) -> BatchKey:
        batch = self.batch
        return batch.model, batch.version, batch.signature, batch.compute_s


class BatchSpans:
    """Makes a span for each batch that served a traced request. On the event loop."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        #: The last batches none of whose requests is known to be traced: most never are, so they are not sorted.
        self._executed: deque[_Executed] = deque(maxlen=_MOST)
        #: `compute` of requests whose batch is not told yet.
        self._computed: BoundedCache[BatchKey, list[SpanContext]] = BoundedCache(_MOST)
        #: Spans that may get more links, and when each ended.
        self._open: dict[BatchKey, tuple[Span, int]] = {}

    @property
    def subscriptions(self) -> Subscriptions:
        return {BatchExecuted: self.executed}

    def executed(self, batch: BatchExecuted) -> None:
        executed = _Executed(batch, time.time_ns())
        requests = self._computed.pop(executed.key, None) if self._computed else None
        if requests is None:
            self._executed.append(executed)
        else:
            self._begin(executed, requests)

    def computed(self, key: BatchKey, request: SpanContext) -> None:
        """A traced request was computed by the batch of this key; the span is its `compute`."""
        if key in self._open:
            self._open[key][0].add_link(request)
        elif key in self._computed:
            self._computed[key].append(request)
        else:
            seconds = key[3]  # which are hardly ever those of another one
            executed = next(
                (each for each in self._executed if each.batch.compute_s == seconds and each.key == key), None
            )
            if executed is None:
                self._computed.keep(key, [request])
            else:
                self._begin(executed, [request])

    def close(self) -> None:
        """Ends the spans that wait for more requests."""
        for key in list(self._open):
            self._end(key)

    def _begin(self, executed: _Executed, requests: list[SpanContext]) -> None:
        batch, ended = executed
        attributes: dict[str, str | int] = {
            "ferry.model": batch.model,
            "ferry.model.version": batch.version,
            "ferry.signature": batch.signature,
            "ferry.batch.rows": batch.rows,
            "ferry.batch.padded_rows": batch.padded_rows,
            "ferry.batch.requests": len(batch.queue_s),
            "ferry.batch.reason": batch.reason,
        }
        span = self._tracer.start_span(
            "batch",
            Context(),
            attributes=attributes,
            links=[Link(each) for each in requests],
            start_time=ended - int(1e9 * batch.compute_s),
        )
        self._open[executed.key] = span, ended
        asyncio.get_running_loop().call_later(_OPEN_S, self._end, executed.key)

    def _end(self, key: BatchKey) -> None:
        span, ended = self._open.pop(key, (None, 0))
        if span is not None:
            span.end(ended)
