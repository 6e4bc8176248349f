"""Pages for operators, as tests read them."""

from __future__ import annotations

from typing import Any

import orjson

from app.instrumentation.metric_lines import content_type_of
from app.instrumentation.metrics import Metrics
from app.transports.rendered_pages import Page, whole


def metrics_text(metrics: Metrics, accepted: str = "") -> str:
    return whole(metrics.render(content_type_of(accepted))).decode()


def document_of(page: Page) -> Any:
    return orjson.loads(page.body)
