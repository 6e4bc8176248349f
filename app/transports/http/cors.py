"""Cross-origin requests from any web page: TensorFlow Serving's --rest_api_enable_cors_support."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from app.transports.http.asgi import Header

ALLOW_ANY_ORIGIN: Header = (b"access-control-allow-origin", b"*")

_ANY_ORIGIN = Headers({"origin": "*"})


class AllowAnyOrigin(CORSMiddleware):
    """Starlette's CORS middleware for every origin: answers preflight requests and marks every other reply.

    Starlette marks only replies to requests with an Origin. Here all are marked, as replies are that need no ASGI.
    """

    def __init__(self, application: ASGIApp) -> None:
        super().__init__(application, ["*"], ["GET", "POST", "OPTIONS"], ["*"], max_age=86400)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if scope["method"] == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers:
            await super().__call__(scope, receive, send)
        else:
            await self.simple_response(scope, receive, send, _ANY_ORIGIN)
