"""HEAD, OPTIONS and Allow, which no route defines for itself (RFC 9110, sections 9.3.2, 9.3.7 and 10.2.1)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from app.transports.http.asgi import Application, Message, Receive, Scope, Send

#: The methods that the path of a scope accepts; empty if there is no such path.
MethodsOf = Callable[[Scope], Collection[str]]


class HeadAndOptions:
    """An ASGI application that answers HEAD as GET without its content, and OPTIONS with the methods of the path."""

    def __init__(self, application: Application, methods: MethodsOf) -> None:
        self._application = application
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["method"]:
            case "HEAD":
                await self._application({**scope, "method": "GET"}, receive, _without_content(send))
            case "OPTIONS" if methods := self._methods(scope):
                headers = [(b"allow", allow(methods).encode())]
                await send({"type": "http.response.start", "status": 204, "headers": headers})
                await send({"type": "http.response.body", "body": b""})
            case _:
                await self._application(scope, receive, send)


def allow(methods: Collection[str]) -> str:
    """The value of Allow of a path whose routes have these methods."""
    return ", ".join(sorted({*methods, "OPTIONS", *(["HEAD"] if "GET" in methods else [])}))


def _without_content(send: Send) -> Send:
    """Sends the head of a reply as it is, Content-Length included, and an empty body."""

    async def send_head(message: Message) -> None:
        if message["type"] != "http.response.body":
            await send(message)
        elif not message.get("more_body", False):
            await send({"type": "http.response.body", "body": b""})

    return send_head
