"""Pages for operators, as tests read them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

import orjson

from app.instrumentation.metric_lines import content_type_of
from app.instrumentation.metrics import Metrics
from app.transports.rendered_pages import Page

T = TypeVar("T")


def whole(pieces: Generator[None, None, T]) -> T:
    """What comes of all pieces, made at once."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            page: T = end.value
            return page


def metrics_text(metrics: Metrics, accepted: str = "") -> str:
    return whole(metrics.render(content_type_of(accepted))).decode()


def document_of(page: Page) -> Any:
    return orjson.loads(page.body)
