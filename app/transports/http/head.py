"""The head of an HTTP request: method, target and headers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from app.access.access import Permit
from app.transports.http.asgi import Header
from app.transports.http.rejections import Rejection
from app.transports.request_priority import PRIORITY_HEADER

#: A host and perhaps a port (RFC 3986, section 3.2).
HOST = re.compile(rb"(?:[A-Za-z0-9._~%!$&'()*+;=-]*|\[[A-Za-z0-9._~%!$&'()*+;=:-]+\])(?::[0-9]*)?")

TIMEOUT_HEADER = b"x-request-timeout-ms"

#: The fields that protocols read of a request to compute, beside those that may name its caller: fair_callers' header,
#: and the credential where one is needed. On the fast path they see no others, and requests that differ in others alone
#: have one and the same head.
READ_FIELDS = frozenset(
    {
        b"accept",
        b"accept-encoding",
        b"content-type",
        b"inference-header-content-length",
        PRIORITY_HEADER,
        TIMEOUT_HEADER,
    }
)


class RequestHead:
    """The head of one request, or of several that mean the same: clients repeat heads, and connections cache them.

    Attributes:
        path: as sent, percent-encoded, without the query.
        headers: names in lower case; on the fast path only those that are read.
        parsed: what a protocol parsed it to; None until then.
        permit: what the caller's credential permits; None where none is needed, or before that is decided.
        rejection: the last rejection of a request with this head (rejections.py).
        alike: one object for all heads that differ only in their credentials and ask for the same.
    """

    __slots__ = ("_named", "alike", "headers", "method", "parsed", "path", "permit", "query", "rejection")

    def __init__(self, method: str, path: str, query: bytes, headers: Sequence[Header]) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.parsed: Any = None
        self.permit: Permit | None = None
        self.rejection: Rejection | None = None
        self.alike: object = object()
        self._named = dict(reversed(headers))

    def header(self, name: bytes) -> bytes | None:
        """The value of the first header of that name; `name` is in lower case."""
        return self._named.get(name)
