"""The HTTP application: inference paths as plain ASGI applications, all other paths in FastAPI.

FastAPI's stack costs more than half of a small request (docs/architecture/http.md, "HTTP"),
so the paths that carry inference bypass it; they are in the OpenAPI document all the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol
from weakref import ref

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from app import __version__
from app.access.rules import OPEN, Need, Permission
from app.codecs.json.writing import dumps
from app.core.errors import ServingError
from app.core.interfaces import ServedModel
from app.protocols.open_inference.rest import OpenInferenceRest
from app.protocols.operations.batching_page import BATCHING_PATH, BatchingControl, batching_routes
from app.protocols.operations.front_page import FRONT_PATH, front_page
from app.protocols.operations.health import Operable, health_routes, page_response, wanted_encoding
from app.protocols.operations.needs import need_of_page
from app.protocols.operations.openapi.document import add_access, add_protocols, described_models
from app.protocols.tensorflow_serving.rest import TensorFlowRest
from app.server.grpc_servers import GrpcBackend, GrpcServers
from app.transports.access_log import AccessLog
from app.transports.administration import Administration
from app.transports.http.asgi import Application, Message, Receive, Scope, Send, path_as_sent
from app.transports.http.audience import Audience
from app.transports.http.compression import compressed_page
from app.transports.http.cors import EXPOSED_TO_ANY_ORIGIN, AllowAnyOrigin
from app.transports.http.direct.fast_path import FastPath
from app.transports.http.exchange import own_port
from app.transports.http.guard import Guard, caller_of
from app.transports.http.http_api import HttpApi
from app.transports.http.methods import HeadAndOptions, allow
from app.transports.http.probes import PROBES, Probes
from app.transports.http.replies import CLOSE, HttpOptions, HttpReply, error_body, error_reply, send_reply
from app.transports.http1.uvicorn_adapter import Drainable
from app.transports.rendered_pages import Page, Pieces, RenderedPages, whole
from app.transports.request_caller import CallerRule
from app.transports.request_id import REQUEST_ID, id_in
from app.transports.request_trace import NOTHING_ASKED, Ended
from app.transports.tls.served_tls import ServedTls

#: The methods that a route of FastAPI may have here.
_ROUTED = ("GET", "POST", "PUT", "PATCH", "DELETE")


#: Connections of ours leave the header out. A server that passes it on may have taken the body for bytes of the other
#: protocol, as uvicorn does; what follows must not be read as a request.
_UPGRADE_REJECTED = HttpReply(
    error_body("This server ignores no Upgrade, and may have lost the body: send the request without the header"),
    400,
    (CLOSE,),
)


class HttpBackend(GrpcBackend, Operable, BatchingControl, Drainable, Protocol):
    """The server behind the application: `Server`, or `FrontendServer` in a frontend.

    draining: set when the server drains.
    http_connections: gives the number of open connections; set by the server of HTTP.
    tls: the TLS of handshakes; None without TLS.
    stopped: no model is in use or being loaded any more.
    """

    draining: asyncio.Event
    http_connections: Callable[[], int] | None
    pages: RenderedPages
    tls: ServedTls | None
    stopped: bool

    @property
    def grpc(self) -> GrpcServers | None:
        """Answers calls of gRPC that come by the ports of HTTP."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class HttpApp(FastAPI):
    """A FastAPI application whose inference paths are answered by plain ASGI applications.

    Its lifespan starts and stops the server.
    """

    def __init__(self, server: HttpBackend) -> None:
        super().__init__(
            title="Ferry HTTP API",  # generated clients take their name from it: `ferry-client` is another
            version=__version__,
            summary="Serves TensorFlow SavedModels",
            lifespan=_lifespan,
        )
        self.server = server
        administration = Administration.of(server.settings)
        self._access = AccessLog.of(server.settings.access_log)
        tensorflow, v2 = _protocols(server, administration)
        # By the first segment of a path, in lower case.
        self._inference: dict[str, HttpApi] = {"v1": tensorflow, "predict": tensorflow, "v2": v2}
        for protocol in self._inference.values():
            protocol.access = self._access
        cors = server.settings.cors
        answer: Application = HeadAndOptions(self._answer, self.methods)
        self._pages = Guard(super().__call__, server.access, self._need_of_page, server.listener)
        if server.access is not None:  # without a key a caller learns no methods of a path, either
            answer = Guard(answer, server.access, _need_of_options, server.listener)
        self._http: Application = AllowAnyOrigin(answer) if cors else answer
        headers, probes = EXPOSED_TO_ANY_ORIGIN if cors else (), Probes(server, self._access)
        path = partial(
            FastPath, headers=headers, memory=server.memory, burst=server.burst, access=server.access, probes=probes
        )
        #: The fast path of connections of the callers' port, which answer inference themselves.
        self.fast_path = path(self._protocol)
        #: The fast path of connections of the operators' port, which answer no inference.
        self.operators_path = path(lambda _: None)
        self._operator_port = server.settings.operator_port
        self._described: list[ref[ServedModel]] = []
        self._document = b""
        self._front_pages: dict[bool, str] = {}  # for operators, and for all others
        self.add_route(FRONT_PATH, self._front_page, include_in_schema=False)
        self.include_router(health_routes(server, server.settings.metrics_path))
        self.include_router(batching_routes(server, administration))
        self.add_exception_handler(HTTPException, _http_error)
        self.add_exception_handler(ServingError, _serving_error)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        request_id = id_in(scope["headers"])
        if request_id:
            send = _with_id(send, request_id)
        if any(name == b"upgrade" for name, _ in scope["headers"]):
            await send_reply(_UPGRADE_REJECTED, send)
        else:
            await self._http(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        protocol = self._protocol(scope["path"])
        is_here = self._is_answered_here(scope, protocol)
        if protocol is not None and is_here:
            await protocol(scope, receive, send)
            return
        page: Application = self._pages if is_here else _not_on_this_port
        if self._access is not None and self._access.wants():
            await _logged(self._access, page, scope, receive, send)
        else:
            await page(scope, receive, send)

    def _is_answered_here(self, scope: Scope, protocol: HttpApi | None) -> bool:
        """True if the path is answered on the port of the request. Without a port for operators every path is.

        FastAPI's pages are for operators, except the probes of load balancers and the front page.
        """
        if not self._operator_port:
            return True
        if protocol is not None:
            audience = protocol.audience(path_as_sent(scope))
        else:
            everyone = scope["path"] in PROBES or scope["path"] == FRONT_PATH
            audience = Audience.EVERYONE if everyone else Audience.OPERATORS
        return audience.is_answered(for_operators=self._is_for_operators(scope))

    def _is_for_operators(self, scope: Scope) -> bool:
        """True if the request came to the port of operators."""
        return bool(self._operator_port) and own_port(scope) == self._operator_port

    def _need_of_page(self, method: str, path: str) -> Need:
        return need_of_page(method, path, self.server.settings.metrics_path)

    def _protocol(self, path: str) -> HttpApi | None:
        """The protocol that a path belongs to; None if FastAPI serves it."""
        protocol = self._inference.get(path.removeprefix("/").partition("/")[0].lower())
        # The batching page lies below /v1/models, but FastAPI serves it.
        return None if protocol is None or BATCHING_PATH.fullmatch(path) else protocol

    def methods(self, scope: Scope) -> Collection[str]:
        """The methods that the path of a request accepts; empty if there is no such path."""
        protocol = self._protocol(scope["path"])
        if not self._is_answered_here(scope, protocol):
            return ()
        if protocol is not None:
            return protocol.methods(path_as_sent(scope))
        asked = [(method, {**scope, "method": method}) for method in _ROUTED]
        return [method for method, each in asked if any(route.matches(each)[0] is Match.FULL for route in self.routes)]

    def setup(self) -> None:
        """FastAPI calls this to add its own pages, of which the first route that matches is taken."""
        assert self.openapi_url is not None  # noqa: S101 - it is not switched off
        self.add_route(self.openapi_url, self._openapi_page, include_in_schema=False)
        super().setup()

    async def _front_page(self, request: Request) -> Response:
        """The front page, made once for each kind of port: routes do not change."""
        port = self._is_for_operators(request.scope)
        if port not in self._front_pages:

            def methods(path: str) -> Collection[str]:
                return self.methods({**request.scope, "path": path, "raw_path": path.encode()})

            self._front_pages[port] = front_page(__version__, methods)
        return PlainTextResponse(self._front_pages[port])

    async def _openapi_page(self, request: Request) -> Response:
        if self.openapi_schema is None:  # once, in 25 ms
            await self.server.pages.fetch("own openapi", partial(asyncio.to_thread, super().openapi))
        encoding = wanted_encoding(request)
        render = partial(self._render_openapi, encoding)
        return page_response(await self.server.pages.ask(("openapi", encoding), render))

    def _render_openapi(self, encoding: str | None) -> Pieces[Page]:
        """The OpenAPI document, made anew when the models differ."""
        models = described_models(self.server.repository)
        yield
        if (
            not self._document
            or len(models) != len(self._described)
            or any(described() is not model for described, model in zip(self._described, models, strict=True))
        ):
            document = yield from self._openapi()
            self._document = dumps(document)
            self._described = [ref(model) for model in models]
        return (yield from compressed_page(self._document, "application/json", encoding))

    def openapi(self) -> dict[str, Any]:
        """Every route, for the models that are ready now."""
        return whole(self._openapi())

    def _openapi(self) -> Pieces[dict[str, Any]]:
        document = yield from add_protocols(super().openapi(), self.server.repository)
        return document if self.server.access is None else add_access(document, self._is_open)

    def _is_open(self, method: str, path: str) -> bool:
        protocol = self._protocol(path)
        need = self._need_of_page if protocol is None else protocol.needs
        return need(method, path).permission is None


def _protocols(server: HttpBackend, administration: Administration) -> tuple[HttpApi, HttpApi]:
    """TensorFlow Serving's protocol over HTTP, and Open Inference."""
    settings, listener, readers = server.settings, server.listener, server.readers
    options = HttpOptions(
        settings.max_body_bytes,
        settings.request_timeout_ms,
        CallerRule.of(settings.fair_callers),
        server.tracing,
        server.access,
        server.memory,
    )
    tensorflow = TensorFlowRest(
        server.repository, listener, options, draining=server.draining, readers=readers, pages=server.pages
    )
    v2 = OpenInferenceRest(server.open_inference, listener, options, readers=readers, administration=administration)
    return tensorflow, v2


async def _not_on_this_port(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - an application
    text = f"Not found on this port: {scope['method']} {scope['path'][:256]} (setting operator_port)"
    await send_reply(HttpReply(error_body(text), 404), send)


async def _logged(access: AccessLog, page: Application, scope: Scope, receive: Receive, send: Send) -> None:
    """Answers a request that no protocol answers, and writes its line of the access log."""
    started_s = time.monotonic()
    status, size = "500", 0

    async def watched(message: Message) -> None:
        nonlocal status, size
        status = str(message.get("status", status))
        size += len(message.get("body", b""))
        await send(message)

    try:
        await page(scope, receive, watched)
    finally:
        access.write(
            Ended("http", status, NOTHING_ASKED, started_s, time.monotonic()),
            client=(scope.get("client") or ("",))[0],
            method=scope["method"],
            path=path_as_sent(scope),
            size=size,
            request_id=id_in(scope["headers"]),
            caller=caller_of(scope),
        )


def _need_of_options(method: str, path: str) -> Need:  # noqa: ARG001 - as of any path
    return Need(Permission.METADATA) if method == "OPTIONS" else OPEN


def _with_id(send: Send, request_id: bytes) -> Send:
    """A `send` that adds the client's id of its request to the reply."""

    async def with_id(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], (REQUEST_ID, request_id)]}
        await send(message)

    return with_id


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    assert isinstance(app, HttpApp)  # noqa: S101 - HttpApp gives itself this lifespan
    await app.server.start()
    yield
    await app.server.stop()


async def _serving_error(request: Request, error: Exception) -> Response:  # noqa: ARG001 - Starlette's signature
    """The reply to an error of a page: a frontend fetches pages from the engine, which may not answer."""
    assert isinstance(error, ServingError)  # noqa: S101 - registered for these alone
    reply = error_reply(error)
    headers = {name.decode(): value.decode() for name, value in reply.headers}
    return Response(reply.body, reply.status, headers, "application/json")


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    """The reply to an error of FastAPI, in the form of all HTTP errors of Ferry."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for these alone
    text = f"{error.detail}: {request.method} {request.url.path}. See /docs for what there is"
    headers = dict(error.headers or {})
    if error.status_code == 405:  # Starlette tells the methods of one of the path's routes
        headers["Allow"] = allow(request.app.methods(request.scope))
    return JSONResponse({"error": text}, status_code=error.status_code, headers=headers)
