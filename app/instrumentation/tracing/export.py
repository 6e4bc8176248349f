"""The export of spans by the SDK's exporter, in a thread of its own, within the bounds of the SDK's queue.

A collector that does not answer costs no request anything: its thread waits, the queue is full (2,048 spans by default,
OTEL_BSP_MAX_QUEUE_SIZE), and spans beyond it are dropped.
"""

from __future__ import annotations

import asyncio
import logging
import threading

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from app import __version__
from app.instrumentation.tracing.spans import Spans

logger = logging.getLogger(__name__)

#: This logger would write a line for each malformed tracestate, with its text, which strangers choose.
logging.getLogger("opentelemetry.trace.span").setLevel(logging.ERROR)


def _hide_headers(record: logging.LogRecord) -> bool:
    """Replace the library's text, which shows headers (OTEL_EXPORTER_OTLP_HEADERS) with credentials."""
    record.msg, record.args = "A header of OTEL_EXPORTER_OTLP_HEADERS is not NAME=VALUE; it is not sent", ()
    return True


logging.getLogger("opentelemetry.util.re").addFilter(_hide_headers)

#: The seconds for the last spans when the server stops. Chosen: a collector that works takes milliseconds.
FLUSH_S = 2.0


class Export:
    """The queue and the thread that export spans. Made on any thread; its thread ends with `close`.

    Args:
        exporter: None for OTLP over HTTP, by the SDK's variables.

    Attributes:
        spans: makes the spans.
    """

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        self._queue = BatchSpanProcessor(exporter or OTLPSpanExporter())
        self.spans = Spans(self._queue.on_end, _resource())

    async def close(self) -> None:
        """Send the remaining spans; give up after FLUSH_S."""
        sending = threading.Thread(target=self._queue.shutdown, name="last spans", daemon=True)
        sending.start()
        await asyncio.to_thread(sending.join, FLUSH_S)
        if sending.is_alive():
            logger.warning("The last spans could not be sent within %g s and are lost", FLUSH_S)


def _resource() -> Resource:
    """Names the service "ferry" unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES do."""
    resource = Resource.create({SERVICE_VERSION: __version__})
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "ferry"}))
    return resource
