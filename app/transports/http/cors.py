"""Web pages of other origins may ask, too: TensorFlow Serving's --rest_api_enable_cors_support."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from app.transports.http.asgi import Header, Message, Receive, Scope, Send

Application = Callable[[Scope, Receive, Send], Awaitable[None]]

ALLOW_ANY_ORIGIN: Header = (b"access-control-allow-origin", b"*")
_PREFLIGHT: tuple[Header, ...] = (
    ALLOW_ANY_ORIGIN,
    (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
    (b"access-control-allow-headers", b"*"),
    (b"access-control-max-age", b"86400"),
    (b"content-length", b"0"),
)


class AllowAnyOrigin:
    """An ASGI application before `application`: answers OPTIONS that tell an Origin, and marks every reply."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "OPTIONS" and any(name == b"origin" for name, _ in scope["headers"]):
            await send({"type": "http.response.start", "status": 200, "headers": [*_PREFLIGHT]})
            await send({"type": "http.response.body"})
            return

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], ALLOW_ANY_ORIGIN]}
            await send(message)

        await self._application(scope, receive, marked)
