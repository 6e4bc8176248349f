"""The options of protocols over HTTP, by the settings: the same in one process and in each frontend."""

from __future__ import annotations

from app.access.access import Access
from app.config.settings import Settings
from app.transports.http.replies import HttpOptions
from app.transports.memory.client_memory import ClientMemory
from app.transports.request_caller import CallerRule
from app.transports.request_trace import Tracing


def http_options(
    settings: Settings, tracing: Tracing | None, access: Access | None, memory: ClientMemory
) -> HttpOptions:
    return HttpOptions(
        settings.max_body_bytes,
        settings.request_timeout_ms,
        CallerRule.of(settings.fair_callers),
        tracing,
        access,
        memory,
    )
