"""HTTP routes for liveness, readiness, a readable summary, and the metrics page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from app.core.interfaces import ServerHealth


class Operable(ServerHealth, Protocol):
    """What the routes show of a server."""

    async def summary(self) -> dict[str, Any]:
        """Models, devices, queue and uptime, for people."""

    async def metrics(self) -> tuple[bytes, str]:
        """The metrics page and its content type."""


def health_routes(server: Operable, metrics_path: str = "") -> APIRouter:
    """GET /livez, /readyz, /health and /metrics; the metrics page also at `metrics_path`, if that is given."""
    router = APIRouter(tags=["health"])

    @router.get("/livez", summary="Is the process alive?", responses={503: {"description": "No: restart it"}})
    async def livez() -> PlainTextResponse:
        return _verdict(server.dead())

    @router.get("/readyz", summary="Is it ready for requests?", responses={503: {"description": "Not now"}})
    async def readyz() -> PlainTextResponse:
        return _verdict([*server.dead(), *server.unready()], server.problems())

    @router.get("/health", summary="Models, devices, queue and uptime")
    async def summary() -> JSONResponse:
        return JSONResponse(await server.summary())

    @router.get("/metrics", summary="Prometheus metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        page, content_type = await server.metrics()
        return Response(page, media_type=content_type)

    if metrics_path:
        router.add_api_route(metrics_path, metrics, include_in_schema=False)
    return router


def _verdict(reasons: list[str], problems: Sequence[str] = ()) -> PlainTextResponse:
    """200 and 'ok', or 503 and the reasons; then what else does not work; one a line."""
    lines = dict.fromkeys([*(reasons or ["ok"]), *problems])
    return PlainTextResponse("\n".join(lines), status_code=503 if reasons else 200)
