"""Spans of requests that are over, and of what they consisted of.

    POST /v1/models/{model}:predict      the request
    |- queue                             it waited
    `- compute                           it was in a call of the model

Of a pipeline, the children are its steps, by their names, and each has `queue` and `compute`. Times are put one behind
the other, up to the moment at which the answer was there; nothing of it is measured again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, TraceState, format_span_id, format_trace_id

from app.core.events import Listener, RequestTraced, ignore
from app.core.inference import BatchTiming, StepTiming
from app.instrumentation.tracing.spans import Spans
from app.transports.request_trace import TracedRequest
from app.transports.trace_context import ParentSpan

logger = logging.getLogger(__name__)

#: Monotonic seconds to nanoseconds since 1970.
Epoch = Callable[[float], int]

BATCH_ROWS = "ferry.batch.rows"


class RequestSpans:
    """Makes the spans of each traced request.

    Args:
        listener: is told of each request that has a span.
    """

    def __init__(self, spans: Spans, listener: Listener = ignore) -> None:
        self._spans = spans
        self._listener = listener

    def record(self, request: TracedRequest) -> None:
        """Never raises: what is traced must not decide what is answered."""
        try:
            self._record(request)
        except Exception:
            logger.exception("The spans of a request could not be made: %s", request.name)

    def _record(self, request: TracedRequest) -> None:
        epoch, ended, timing = epoch_now(), request.ended, request.timing
        model, version, signature = ended.asked
        attributes = dict(request.attributes)
        if model:
            attributes |= {"ferry.model": model, "ferry.model.version": version, "ferry.signature": signature}
        if request.rows:
            attributes["ferry.rows"] = request.rows
        if timing.rows:
            attributes[BATCH_ROWS] = timing.rows
        span = self._spans.add(
            request.name,
            epoch(ended.started_s),
            epoch(ended.ended_s),
            parent=_context(request.parent),
            kind=SpanKind.SERVER,
            attributes=attributes,
            error=request.error,
        )
        compute_span_id = ""
        if timing.steps:
            began_s = request.answered_s - timing.queue_s - timing.compute_s
            for step in timing.steps:
                self._step(span, step, began_s, epoch)
        elif timing.rows:
            computed = self._children(span, timing, (ended.started_s, request.answered_s), epoch)
            compute_span_id = format_span_id(computed.span_id)
        self._listener(
            RequestTraced(
                ended.protocol,
                *ended.asked,
                ended.ended_s - ended.started_s,
                format_trace_id(span.trace_id),
                format_span_id(span.span_id),
                epoch(ended.ended_s) / 1e9,
                timing.compute_s,
                compute_span_id,
            )
        )

    def _step(self, request: SpanContext, step: StepTiming, began_s: float, epoch: Epoch) -> None:
        """`began_s`: the arrival at the pipeline."""
        ended_s = began_s + step.ended_s
        started_s = max(began_s, ended_s - step.queue_s - step.compute_s)
        rows = {BATCH_ROWS: step.rows}
        span = self._spans.add(step.name, epoch(started_s), epoch(ended_s), parent=request, attributes=rows)
        self._children(span, step, (started_s, ended_s), epoch)

    def _children(
        self, parent: SpanContext, timing: BatchTiming | StepTiming, within_s: tuple[float, float], epoch: Epoch
    ) -> SpanContext:
        """`queue` and `compute` of a span that lasts this long; returns which one `compute` is."""
        started_s, ended_s = within_s
        computed_s = max(started_s, ended_s - timing.compute_s)
        queued_s = max(started_s, computed_s - timing.queue_s)  # coalesced requests wait as long as their earliest
        computed = epoch(computed_s)
        self._spans.add("queue", epoch(queued_s), computed, parent=parent)
        return self._spans.add("compute", computed, epoch(ended_s), parent=parent)


def epoch_now() -> Epoch:
    """By the clocks as they are now."""
    offset = time.time_ns() - time.monotonic_ns()
    return lambda seconds: offset + int(1e9 * seconds)


def _context(parent: ParentSpan | None) -> SpanContext | None:
    if parent is None:
        return None
    state = TraceState.from_header([parent.state]) if parent.state else None
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=flags, trace_state=state)
