"""The types of an ASGI application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


def path_as_sent(scope: Scope) -> str:
    """The path of a request, percent-encoded, without the query."""
    raw: bytes | None = scope.get("raw_path")
    return raw.decode("latin-1") if raw else str(scope["path"])
