"""The head of an HTTP request: method, target and headers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.transports.http.asgi import Header
from app.transports.http.rejections import Rejection


class RequestHead:
    """The head of one request, or of several that are equal: clients repeat heads, and connections cache them.

    Attributes:
        path: as sent, percent-encoded, without the query.
        headers: names in lower case.
        parsed: what a protocol parsed it to; None until then.
        rejection: the last rejection of a request with this head (rejections.py).
    """

    __slots__ = ("_named", "headers", "method", "parsed", "path", "query", "rejection")

    def __init__(self, method: str, path: str, query: bytes, headers: Sequence[Header]) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.parsed: Any = None
        self.rejection: Rejection | None = None
        self._named = dict(reversed(headers))

    def header(self, name: bytes) -> bytes | None:
        """The value of the first header of that name; `name` is in lower case."""
        return self._named.get(name)
