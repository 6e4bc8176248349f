"""Traces of one process, if the settings ask for them: who decides, who makes spans, and who sends them."""

from __future__ import annotations

from app.config.settings import Settings
from app.core.events import Listener, Subscriptions
from app.transports.request_trace import Tracing

#: Requests a second that chance takes at most. Chosen: one takes some 0.08 ms of processor time, so 0.8 % of a core.
_MOST_PER_S = 100.0


class Traces:
    """Traces that are on. Nothing of OpenTelemetry is imported where none are made.

    Args:
        share: of the requests without a caller's span, 0 to 1.
        listener: is told of each request that was traced.
        batches: the batches are this process's, too, and have spans.

    Attributes:
        tracing: decides which requests are traced.
        subscriptions: to what happens to batches.
    """

    def __init__(self, share: float, listener: Listener, *, batches: bool) -> None:
        from app.instrumentation.tracing.batch_spans import BatchSpans  # noqa: PLC0415 - see above
        from app.instrumentation.tracing.export import Export  # noqa: PLC0415 - likewise
        from app.instrumentation.tracing.request_spans import RequestSpans  # noqa: PLC0415 - likewise

        self._export = Export()
        spans = self._export.spans
        self._batches = BatchSpans(spans) if batches else None
        self.tracing = Tracing(share, RequestSpans(spans, listener).record, _MOST_PER_S)
        self.subscriptions: Subscriptions = self._batches.subscriptions if self._batches is not None else {}

    @classmethod
    def of(cls, settings: Settings, listener: Listener, *, batches: bool) -> Traces | None:
        """By the settings traces and trace_sample_share; None without traces."""
        if not settings.traces:
            return None
        return cls(settings.trace_sample_share, listener, batches=batches)

    async def close(self) -> None:
        """Sends what was not sent, within FLUSH_S of export.py."""
        if self._batches is not None:
            self._batches.close()
        await self._export.close()
