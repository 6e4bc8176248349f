"""What stands before the body of an HTTP request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.transports.http.asgi import Header
from app.transports.http.rejections import Rejection


class RequestHead:
    """Method, target and headers.

    `path` is as sent, still percent-encoded and without the query; names in `headers` are in lower case.
    `understood` is what a protocol made of it: a client sends the same head again and again, and connections keep it.
    `rejection` is what was said of late to one that had it (rejections.py).
    """

    __slots__ = ("_named", "headers", "method", "path", "query", "rejection", "understood")

    def __init__(self, method: str, path: str, query: bytes, headers: Sequence[Header]) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.understood: Any = None
        self.rejection: Rejection | None = None
        self._named = dict(reversed(headers))

    def header(self, name: bytes) -> bytes | None:
        """The first of that name; `name` is in lower case."""
        return self._named.get(name)
