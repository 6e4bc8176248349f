"""HTTP routes for liveness, readiness, a readable summary, and the metrics page."""

from __future__ import annotations

from typing import Any, Protocol

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from app.core.interfaces import ServerHealth
from app.protocols.operations.openapi.parts import TEXT, array, failures, in_json, record
from app.transports.http.compression import choose_encoding
from app.transports.http.probes import LIVE, READY, Probes
from app.transports.http.replies import HttpReply
from app.transports.rendered_pages import Page

#: The schema of /health, for programs; further fields are for people.
_SUMMARY = record(
    {"status": {"type": "string", "enum": ["ready", "not ready"]}, "ferry": TEXT, "models": {"type": "object"}}
)

#: The schema of /livez and /readyz: the verdict, its reasons, and problems that do not change it.
_VERDICT = record(
    {"status": {"type": "string", "enum": ["ok", "not ok"]}, "reasons": array(TEXT), "problems": array(TEXT)}
)


class Operable(ServerHealth, Protocol):
    """The part of a server that the routes show."""

    async def summary(self, encoding: str | None) -> Page:
        """Models, devices, queue and uptime, for people, in JSON."""

    async def metrics(self, accepted: str, encoding: str | None) -> Page:
        """The metrics page: OpenMetrics where `accepted`, an Accept header, asks for it."""


def health_routes(server: Operable, metrics_path: str = "") -> APIRouter:
    """GET /livez, /readyz, /health and /metrics; the metrics page also at `metrics_path`, if that is given."""
    router = APIRouter(tags=["health"])
    from_the_engine = failures([503])
    probes = Probes(server)  # Ferry's connections answer probes without these routes, and log them

    @router.get("/livez", operation_id="livez", summary="Is the process alive?", **_verdicts("No: restart it"))
    async def livez() -> Response:
        return _as_response(probes.reply(LIVE))

    @router.get("/readyz", operation_id="readyz", summary="Is it ready for requests?", **_verdicts("Not now"))
    async def readyz() -> Response:
        return _as_response(probes.reply(READY))

    @router.get(
        "/health",
        operation_id="health",
        summary="Models, devices, queue and uptime",
        responses={200: {"content": in_json(_SUMMARY)}, **from_the_engine},
    )
    async def summary(request: Request) -> Response:
        return page_response(await server.summary(wanted_encoding(request)))

    async def metrics(request: Request) -> Response:
        return page_response(await server.metrics(request.headers.get("accept", ""), wanted_encoding(request)))

    pages = [("/metrics", "metrics", "Prometheus metrics")]
    if metrics_path:
        pages.append((metrics_path, "metrics_as_configured", "The same page where it is configured"))
    for path, name, summary_of_page in pages:
        told: dict[str, Any] = {"operation_id": name, "summary": summary_of_page, "responses": from_the_engine}
        router.add_api_route(path, metrics, response_class=PlainTextResponse, **told)
    return router


def _as_response(reply: HttpReply) -> Response:
    return Response(reply.body, reply.status, media_type="application/json")


def wanted_encoding(request: Request) -> str | None:
    """The encoding of the reply, by the client's Accept-Encoding."""
    return choose_encoding(request.headers.get("accept-encoding", "").encode("latin-1"))


def page_response(page: Page) -> Response:
    return Response(page.body, 200, page.headers, page.content_type)


def _verdicts(no: str) -> dict[str, Any]:
    """The OpenAPI responses of a probe: 200 for yes, 503 for no."""
    return {"responses": {200: {"content": in_json(_VERDICT)}, 503: {"description": no, "content": in_json(_VERDICT)}}}
