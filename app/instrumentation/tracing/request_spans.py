"""Spans of requests that are over, and of their parts.

    POST /v1/models/{model}:predict      the request
    |- queue                             the request waited
    `- compute                           the request was in a call of the model

For a pipeline the children are its steps, by their names, and a step has `queue` and `compute`. Times are put one
behind another, up to the answer; nothing is measured again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, TraceState, format_span_id, format_trace_id

from app.core.events import Listener, RequestTraced, ignore
from app.core.inference import BatchTiming, StepTiming
from app.instrumentation.tracing.spans import Spans
from app.transports.request_trace import RequestTrace
from app.transports.trace_context import ParentSpan

logger = logging.getLogger(__name__)

#: Monotonic seconds to nanoseconds since 1970.
Epoch = Callable[[float], int]

BATCH_ROWS = "ferry.batch.rows"


class RequestSpans:
    """The spans of traced requests.

    Args:
        listener: gets a RequestTraced for each of them.
    """

    def __init__(self, spans: Spans, listener: Listener = ignore) -> None:
        self._spans = spans
        self._listener = listener

    def record(self, request: RequestTrace) -> None:
        """Make the spans of a request. Never raises: tracing must not change an answer."""
        try:
            self._record(request)
        except Exception:
            logger.exception("The spans of a request could not be made: %s", request.name)

    def _record(self, request: RequestTrace) -> None:
        # 1. The span of the request.
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

        # 2. Its parts: steps of a pipeline, or the one call.
        compute_span_id = ""
        if timing.steps:
            began_s = request.answered_s - timing.queue_s - timing.compute_s
            for step in timing.steps:
                self._step(span, step, began_s, epoch)
        elif timing.rows:
            computed = self._children(span, timing, (ended.started_s, request.answered_s), epoch)
            compute_span_id = format_span_id(computed.span_id)

        # 3. The event, by which the batch's span finds the request.
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
        """Make the spans of a step. `began_s`: the arrival at the pipeline."""
        ended_s = began_s + step.ended_s
        started_s = max(began_s, ended_s - step.queue_s - step.compute_s)
        rows = {BATCH_ROWS: step.rows}
        span = self._spans.add(step.name, epoch(started_s), epoch(ended_s), parent=request, attributes=rows)
        self._children(span, step, (started_s, ended_s), epoch)

    def _children(
        self, parent: SpanContext, timing: BatchTiming | StepTiming, within_s: tuple[float, float], epoch: Epoch
    ) -> SpanContext:
        """Make `queue` and `compute` of a span, and return the latter. `within_s`: the begin and end of the span."""
        started_s, ended_s = within_s
        computed_s = max(started_s, ended_s - timing.compute_s)
        queued_s = max(started_s, computed_s - timing.queue_s)  # coalesced requests wait as long as their earliest
        computed = epoch(computed_s)
        self._spans.add("queue", epoch(queued_s), computed, parent=parent)
        return self._spans.add("compute", computed, epoch(ended_s), parent=parent)


def epoch_now() -> Epoch:
    """The conversion by the present offset of the clocks."""
    offset = time.time_ns() - time.monotonic_ns()
    return lambda seconds: offset + int(1e9 * seconds)


def _context(parent: ParentSpan | None) -> SpanContext | None:
    if parent is None:
        return None
    state = TraceState.from_header([parent.state]) if parent.state else None
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=flags, trace_state=state)
