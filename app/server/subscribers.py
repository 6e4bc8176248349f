"""The subscribers to a server's events: counts, pages, logs, traces, the audit log, the first lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator

from app.access.audit import Audit
from app.config.settings import Settings
from app.core.events import Event, tell_all
from app.instrumentation import logs
from app.instrumentation.batching_explainer import BatchingExplainer
from app.instrumentation.counts import Counts
from app.instrumentation.metric_lines import content_type_of
from app.instrumentation.metrics import Metrics
from app.instrumentation.model_facts import ModelFacts
from app.instrumentation.state_metrics import ServerState
from app.instrumentation.statistics import ModelStatistics
from app.instrumentation.tensorflow_metrics import TensorFlowMetrics
from app.server.first_lines import FirstLines
from app.server.interrupt_moderation import InterruptModeration
from app.server.traces import Traces


class Subscribers:
    """All subscribers, and the listener that passes each event to its subscribers.

    Args:
        first_lines: one more subscriber.
        state: gives the state of the server, for the metrics page.
        memory_budget: bytes for what clients send.

    Attributes:
        listener: takes each event of the server.
        traces: the traces of requests and batches; None without the setting.
        tracing: decides which requests are traced; None without traces, and with frontends, which trace them.
    """

    def __init__(
        self, settings: Settings, first_lines: FirstLines, state: Callable[[], ServerState], memory_budget: int
    ) -> None:
        counts = Counts()
        self.facts = ModelFacts()
        self.statistics = ModelStatistics(counts)
        self.explanations = BatchingExplainer(counts, self.facts)
        self.metrics = Metrics(counts, self.facts, state, memory_budget=memory_budget, runtime=settings.runtime)
        self._tensorflow_metrics = TensorFlowMetrics(counts) if settings.metrics_path else None
        self.traces = Traces(settings.trace_sample_share, self._tell, batches=True) if settings.traces else None
        self.tracing = None if self.traces is None or settings.frontends else self.traces.tracing
        self._audit = Audit(settings.audit_log) if not settings.frontends else None
        self.listener = tell_all(
            counts.subscriptions,
            self.statistics.subscriptions,
            self.metrics.subscriptions,
            self.facts.subscriptions,
            self.explanations.subscriptions,
            first_lines.subscriptions,
            logs.SUBSCRIPTIONS,
            InterruptModeration(time.monotonic).subscriptions,
            *([self.traces.subscriptions] if self.traces is not None else []),
            *([self._audit.subscriptions] if self._audit is not None else []),
        )

    def _tell(self, event: Event) -> None:
        """The listener, late-bound for subscribers that are created before it."""
        self.listener(event)

    def metrics_type(self, accepted: str) -> str:
        """The content type of the metrics page for this Accept header.

        TensorFlow Serving's metrics are shown as text: their names need that.
        """
        return content_type_of(accepted if self._tensorflow_metrics is None else "")

    def metrics_page(self, content_type: str) -> Generator[None, None, bytes]:
        """The metrics page, in pieces."""
        page = yield from self.metrics.render(content_type)
        if self._tensorflow_metrics is not None:
            page += yield from self._tensorflow_metrics.render()
        return page

    async def close(self) -> None:
        """Sends the traces that were not sent, and closes the audit log."""
        if self.traces is not None:
            await self.traces.close()
        if self._audit is not None:
            self._audit.close()
