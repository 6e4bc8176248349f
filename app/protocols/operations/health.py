"""Liveness, readiness, a readable summary, and the metrics page."""

from __future__ import annotations

from typing import Any, Protocol

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse, PlainTextResponse


class Health(Protocol):
    """What the server knows about its own state."""

    def dead(self) -> list[str]:
        """Reasons to restart the process; empty while it works."""

    def unready(self) -> list[str]:
        """Reasons to send no requests here now; empty when it may be asked."""

    async def summary(self) -> dict[str, Any]:
        """Models, devices, queue, uptime: for people."""

    async def metrics(self) -> tuple[bytes, str]:
        """The metrics page and its content type."""


def health_routes(health: Health) -> APIRouter:
    """GET /livez, /readyz, /health and /metrics."""
    router = APIRouter(tags=["health"])

    @router.get("/livez", summary="Is the process worth keeping?", responses={503: {"description": "Restart it"}})
    async def livez() -> PlainTextResponse:
        return _verdict(health.dead())

    @router.get("/readyz", summary="May requests be sent here?", responses={503: {"description": "Not now"}})
    async def readyz() -> PlainTextResponse:
        return _verdict([*health.dead(), *health.unready()])

    @router.get("/health", summary="Models, devices, queue and uptime")
    async def summary() -> JSONResponse:
        return JSONResponse(await health.summary())

    @router.get("/metrics", summary="Prometheus metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        page, content_type = await health.metrics()
        return Response(page, media_type=content_type)

    return router


def _verdict(reasons: list[str]) -> PlainTextResponse:
    """200 'ok', or 503 and the reasons, one a line."""
    return PlainTextResponse("\n".join(reasons) or "ok", status_code=503 if reasons else 200)
