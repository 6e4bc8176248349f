"""Cross-origin requests from any web page: TensorFlow Serving's --rest_api_enable_cors_support."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware

from app.transports.http.asgi import Application, Header, Message, Receive, Scope, Send

#: On every reply. Scripts may read all of its headers: v2's binary tensors lie where one of them says.
EXPOSED_TO_ANY_ORIGIN: Sequence[Header] = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", b"*"),
)

_PREFLIGHT_HEADERS = frozenset({b"origin", b"access-control-request-method"})


class AllowAnyOrigin:
    """An ASGI application that lets Starlette answer preflight requests and marks the replies to all others.

    Starlette marks only replies to requests with an Origin, and as its version has it. Here every reply gets the same
    headers, as replies on the fast path do. Methods that change the server, such as PATCH, are not allowed.
    """

    def __init__(self, application: Application) -> None:
        self._application = application
        self._preflight = CORSMiddleware(application, ["*"], ["GET", "HEAD", "POST", "OPTIONS"], ["*"], max_age=86400)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "OPTIONS" and {name for name, _ in scope["headers"]} >= _PREFLIGHT_HEADERS:
            await self._preflight(scope, receive, send)
            return

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *EXPOSED_TO_ANY_ORIGIN]}
            await send(message)

        await self._application(scope, receive, marked)
