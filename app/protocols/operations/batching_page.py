"""HTTP routes that explain how a model's batches are formed, and change it while the model serves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from app.batching.policy import DEFAULTS
from app.core.batching_explanation import BatchingExplanation, BatchingOptionsDocument
from app.core.errors import InvalidRequest
from app.protocols.operations.health import page_response, wanted_encoding
from app.protocols.operations.openapi.parts import failures
from app.transports.administration import Administration
from app.transports.http.replies import CLIENT_GONE, ClientGone, read_body
from app.transports.rendered_pages import Page

#: Paths below TensorFlow Serving's /v1/models that its protocol would reject.
BATCHING_PATH = re.compile(r"/v1/models/[^/:]+/batching")

_ERRORS = failures([404, 503])
_CHANGE_ERRORS = failures([400, 403, 404, 413, 415, 503])

_CHANGES = {
    **{key: value for key, value in BatchingOptionsDocument.model_json_schema().items() if key != "required"},
    "title": "Changes",
    "description": "The options to change; others stay.",
}


class BatchingControl(Protocol):
    """The part of a server that the routes call."""

    async def explain_batching(self, model: str, encoding: str | None) -> Page:
        """A BatchingExplanation in JSON. Raises ModelNotFound, ModelNotReady."""

    async def tune_batching(self, model: str, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Changes options by name, from the next batch on; returns all options.

        Raises ModelNotFound, ModelNotReady, InvalidRequest.
        """


#: The most bytes of a body. Chosen: options are short, and the event loop parses them.
_MOST_BYTES = 1 << 16


def batching_routes(batching: BatchingControl, administration: Administration) -> APIRouter:
    """GET and PATCH /v1/models/{model}/batching."""
    router = APIRouter(prefix="/v1/models", tags=["batching"])

    @router.get(
        "/{model}/batching",
        operation_id="batching",
        summary="How batches are formed, what they cost, and what would help",
        response_model=BatchingExplanation,
        responses=_ERRORS,
    )
    async def explain(model: str, request: Request) -> Response:
        return page_response(await batching.explain_batching(model, wanted_encoding(request)))

    @router.patch(
        "/{model}/batching",
        operation_id="change_batching",
        summary="Change how batches are formed, from the next one on",
        response_model=BatchingOptionsDocument,
        responses=_CHANGE_ERRORS,
        openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": _CHANGES}}}},
    )
    async def change(model: str, request: Request) -> Response:
        administration.check_http(request.scope["headers"])
        try:
            body = await read_body(request.scope["headers"], request.receive, _MOST_BYTES)
        except ClientGone:
            return Response(status_code=int(CLIENT_GONE))
        return JSONResponse(await batching.tune_batching(model, read_changes(body)))

    return router


def read_changes(body: bytes) -> dict[str, Any]:
    """Options by name. Raises InvalidRequest if one is unknown, or its value is invalid by itself."""
    try:
        changes = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The body is not JSON: {error}") from None
    if not isinstance(changes, dict) or not changes:
        raise InvalidRequest(
            f"The body must be an object with some of the batching options {', '.join(DEFAULTS.as_dict())}"
        )
    DEFAULTS.changed(changes)
    return changes
