"""Access to pages that no protocol answers: an ASGI application before theirs that checks the caller."""

from __future__ import annotations

from collections.abc import Callable

from app.access.access import Access
from app.access.rules import Need, Permission
from app.core.errors import ServingError
from app.core.events import AccessDenied, Administered, Listener
from app.transports.http.asgi import Application, Message, Receive, Scope, Send, path_as_sent
from app.transports.http.replies import error_reply, send_reply

#: The protocol in events.
PROTOCOL = "http"

_CALLER = "ferry.caller"


class Guard:
    """Rejects callers that lack permission, and sends the events of administration with their outcomes.

    Args:
        access: None if every caller may ask.
        need: what a request needs, by its method and its path, decoded.
    """

    def __init__(
        self, application: Application, access: Access | None, need: Callable[[str, str], Need], listener: Listener
    ) -> None:
        self._application = application
        self._access = access
        self._need = need
        self._listener = listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        need = self._need(scope["method"], scope["path"])
        try:
            if self._access is not None and need.permission is not None:
                permit = self._access.permit(scope["headers"], need)
                scope[_CALLER] = permit.principal.name
                permit.use()
        except ServingError as error:
            if error.denied:
                scope.setdefault(_CALLER, error.caller)
                self._listener(AccessDenied(error.denied, *_who(scope)))
            await send_reply(error_reply(error), send)
            return
        if need.permission is Permission.ADMINISTRATION:
            await self._told(scope, receive, send)
        else:
            await self._application(scope, receive, send)

    async def _told(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = "500"

        async def watched(message: Message) -> None:
            nonlocal status
            status = str(message.get("status", status))
            await send(message)

        try:
            await self._application(scope, receive, watched)
        finally:
            self._listener(Administered(*_who(scope), status))


def caller_of(scope: Scope) -> str:
    """The name of the caller whom a guard has let in; empty if it needed no credential."""
    name: str = scope.get(_CALLER, "")
    return name


def _who(scope: Scope) -> tuple[str, str, str, str]:
    """The fields of events about access: caller, protocol, address, request."""
    address = (scope.get("client") or ("",))[0]
    return caller_of(scope), PROTOCOL, address, f"{scope['method']} {path_as_sent(scope)}"
