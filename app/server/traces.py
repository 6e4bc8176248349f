"""The traces of one process, if the settings ask for them: the choice of requests, their spans, and the export."""

from __future__ import annotations

from app.core.events import Listener, Subscriptions
from app.transports.request_trace import Tracing

#: The most requests a second that are traced by chance. Chosen: a trace takes some 0.08 ms of processor time, so 100
#: take 0.8 % of a core.
_MOST_PER_S = 100.0


class Traces:
    """The traces of a process that makes them; others import nothing of OpenTelemetry.

    Args:
        share: the part of the requests without a caller's span that is traced, 0 to 1.
        listener: hears of each request that was traced.
        batches: this process executes the batches, which have spans, too.

    Attributes:
        tracing: decides which requests are traced.
        subscriptions: the events of batches.
    """

    def __init__(self, share: float, listener: Listener, *, batches: bool) -> None:
        from app.instrumentation.tracing.batch_spans import BatchSpans  # noqa: PLC0415 - needs the extra `tracing`
        from app.instrumentation.tracing.export import Export  # noqa: PLC0415 - needs the extra `tracing`
        from app.instrumentation.tracing.request_spans import RequestSpans  # noqa: PLC0415 - needs the extra `tracing`

        self._export = Export()
        spans = self._export.spans
        self._batches = BatchSpans(spans) if batches else None
        self.tracing = Tracing(share, RequestSpans(spans, listener).record, _MOST_PER_S)
        self.subscriptions: Subscriptions = self._batches.subscriptions if self._batches is not None else {}

    async def close(self) -> None:
        """Sends what was not sent, within FLUSH_S of export.py."""
        if self._batches is not None:
            self._batches.close()
        await self._export.close()
