"""The HTTP application: inference paths as plain ASGI applications, all other paths in FastAPI.

FastAPI's stack costs more than half of a small request (docs/architecture.md, "The HTTP face"),
so the paths that carry inference bypass it; they are in the OpenAPI document all the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from app import __version__
from app.config.settings import Settings
from app.core.errors import ServingError
from app.core.interfaces import ServedRepository
from app.protocols.open_inference.rest import OpenInferenceRest
from app.protocols.operations.batching_page import BATCHING_PATH, BatchingControl, batching_routes
from app.protocols.operations.health import Operable, health_routes
from app.protocols.operations.openapi import model_paths
from app.protocols.tensorflow_serving.rest import TensorFlowRest
from app.transports.http.cors import ALLOW_ANY_ORIGIN, AllowAnyOrigin
from app.transports.http.replies import error_reply
from app.transports.http1.fast_path import FastPath


class HttpBackend(Operable, BatchingControl, Protocol):
    """What the application serves: Server, or frontends/frontend/frontend_server.py."""

    settings: Settings
    tensorflow_rest: TensorFlowRest
    open_inference_rest: OpenInferenceRest

    @property
    def repository(self) -> ServedRepository: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class HttpApp(FastAPI):
    """A FastAPI application whose inference paths are answered by plain ASGI applications.

    Its lifespan starts and stops the server.
    """

    def __init__(self, server: HttpBackend) -> None:
        super().__init__(
            title="Ferry", version=__version__, summary="Serves TensorFlow SavedModels", lifespan=_lifespan
        )
        self.server = server
        tensorflow = server.tensorflow_rest
        # By the first segment of a path, in lower case.
        protocols = {"v1": tensorflow, "predict": tensorflow, "v2": server.open_inference_rest}
        cors = server.settings.cors
        self._inference = {name: AllowAnyOrigin(each) if cors else each for name, each in protocols.items()}
        #: For connections that answer inference themselves.
        self.fast_path = FastPath(lambda path: protocols.get(_first_segment(path)), (ALLOW_ANY_ORIGIN,) if cors else ())
        self.include_router(health_routes(server, server.settings.metrics_path))
        self.include_router(batching_routes(server))
        self.add_exception_handler(HTTPException, _http_error)
        self.add_exception_handler(ServingError, _serving_error)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope["path"]
            application = self._inference.get(_first_segment(path))
            # The batching page lies below /v1/models, but FastAPI serves it.
            if application is not None and not BATCHING_PATH.fullmatch(path):
                return await application(scope, receive, send)
        return await super().__call__(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """FastAPI's document and the paths of the models that are served now."""
        self.openapi_schema = None
        schema = super().openapi()
        schema["paths"] = {**model_paths(self.server.repository), **schema["paths"]}
        return schema


def _first_segment(path: str) -> str:
    return path.removeprefix("/").partition("/")[0].lower()


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    assert isinstance(app, HttpApp)  # noqa: S101 - HttpApp gives itself this lifespan
    await app.server.start()
    yield
    await app.server.stop()


async def _serving_error(request: Request, error: Exception) -> Response:  # noqa: ARG001 - Starlette's signature
    """A frontend fetches pages from the engine, which may not answer."""
    assert isinstance(error, ServingError)  # noqa: S101 - registered for these alone
    reply = error_reply(error)
    headers = {name.decode(): value.decode() for name, value in reply.headers}
    return Response(reply.body, reply.status, headers, "application/json")


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    """Errors of FastAPI in the form of all HTTP errors of Ferry."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for these alone
    text = f"{error.detail}: {request.method} {request.url.path}. See /docs for what there is"
    return JSONResponse({"error": text}, status_code=error.status_code, headers=error.headers)
