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

from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    TraceState,
    format_span_id,
    format_trace_id,
    set_span_in_context,
)

from app.core.events import Listener, RequestTraced, ignore
from app.core.inference import BatchTiming, StepTiming
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

    def __init__(self, tracer: Tracer, listener: Listener = ignore) -> None:
        self._tracer = tracer
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
        span = self._tracer.start_span(
            request.name, _context(request.parent), SpanKind.SERVER, attributes, start_time=epoch(ended.started_s)
        )
        if request.error:
            span.set_status(Status(StatusCode.ERROR, request.error))
        compute_span_id = ""
        if timing.steps:
            began_s = request.answered_s - timing.queue_s - timing.compute_s
            for step in timing.steps:
                self._step(span, step, began_s, epoch)
        elif timing.rows:
            computed = self._children(span, timing, (ended.started_s, request.answered_s), epoch)
            compute_span_id = format_span_id(computed.span_id)
        span.end(epoch(ended.ended_s))
        made = span.get_span_context()
        self._listener(
            RequestTraced(
                ended.protocol,
                *ended.asked,
                ended.ended_s - ended.started_s,
                format_trace_id(made.trace_id),
                format_span_id(made.span_id),
                epoch(ended.ended_s) / 1e9,
                timing.compute_s,
                compute_span_id,
            )
        )

    def _step(self, request: Span, step: StepTiming, began_s: float, epoch: Epoch) -> None:
        """`began_s`: the arrival at the pipeline."""
        ended_s = began_s + step.ended_s
        started_s = max(began_s, ended_s - step.queue_s - step.compute_s)
        within = set_span_in_context(request, Context())
        span = self._tracer.start_span(
            step.name, within, attributes={BATCH_ROWS: step.rows}, start_time=epoch(started_s)
        )
        self._children(span, step, (started_s, ended_s), epoch)
        span.end(epoch(ended_s))

    def _children(
        self, parent: Span, timing: BatchTiming | StepTiming, within_s: tuple[float, float], epoch: Epoch
    ) -> SpanContext:
        """`queue` and `compute` of a span that lasts this long; returns which one `compute` is."""
        started_s, ended_s = within_s
        computed_s = max(started_s, ended_s - timing.compute_s)
        queued_s = max(started_s, computed_s - timing.queue_s)  # coalesced requests wait as long as their earliest
        within, computed, ended = set_span_in_context(parent, Context()), epoch(computed_s), epoch(ended_s)
        self._child(within, "queue", epoch(queued_s), computed)
        return self._child(within, "compute", computed, ended)

    def _child(self, within: Context, name: str, start: int, end: int) -> SpanContext:
        span = self._tracer.start_span(name, within, start_time=start)
        span.end(end)
        return span.get_span_context()


def epoch_now() -> Epoch:
    """By the clocks as they are now."""
    offset = time.time_ns() - time.monotonic_ns()
    return lambda seconds: offset + int(1e9 * seconds)


def _context(parent: ParentSpan | None) -> Context:
    if parent is None:
        return Context()
    state = TraceState.from_header([parent.state]) if parent.state else None
    flags = TraceFlags(TraceFlags.SAMPLED)
    caller = SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=flags, trace_state=state)
    return set_span_in_context(NonRecordingSpan(caller), Context())
