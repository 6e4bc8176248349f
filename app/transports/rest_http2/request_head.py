"""The head of a request of HTTP/2: the way that the request goes, or its fault (RFC 9113, section 8.3).

The answers are those of HTTP/1.1 (http1/head_parser.py) wherever the requests could be the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from app.transports.http.asgi import Header
from app.transports.http.connections.connection_limits import (
    MOST_HEADERS,
    MOST_REQUEST_LINE_BYTES,
    ConnectionLimits,
)
from app.transports.http.direct.fast_path import FastPath
from app.transports.http.head import HOST, RequestHead
from app.transports.http.http_api import HttpApi
from app.transports.http.probes import probe_of
from app.transports.http.replies import UNKNOWN_METHOD, Fault
from app.transports.http2.hpack import Field, HeaderList
from app.transports.http2.request_fields import RequestFields
from app.transports.request_id import id_in
from app.transports.trace_context import ParentSpan, parent_span

#: RFC 9110, section 9, and RFC 5789.
_METHODS = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"TRACE", b"PATCH"})

_PATH = re.compile(rb"/[!\"$-~]*")

#: A request with one of these headers needs more than a plain body and a plain reply.
_UNUSUAL = frozenset({b"content-encoding", b"expect"})

#: What the request line of HTTP/1.1 has beside the method and the path: two spaces and the version.
_LINE_BYTES = len(b"  HTTP/1.1")

_BAD_PATH = Fault(400, "The :path of a request is a path that begins with / and has no fragment (RFC 9113, 8.3.1)")
_HOSTS = Fault(400, "A request has one host, perhaps with a port, in :authority or Host (RFC 9113, 8.3.1)")


class RestHead:
    """The head of one request, or of several of a connection that are equal.

    Attributes:
        fault: why the request is rejected; None if it is not.
        computes: the protocol and the head that it sees, if the request takes the fast path; else None.
        method, target: the path as sent, with the query.
        probe: that the request is; empty if it is none.
        expects: the client waits for a 100 before it sends the body.
        long_bytes: what the head takes, if that is much; else 0.
        request_id: the client's; empty without one.
    """

    __slots__ = (
        "_authority", "_fields", "computes", "expects", "fault", "long_bytes", "method", "probe",
        "request_id", "target",
    )  # fmt: skip

    version = "2"

    def __init__(self, headers: HeaderList, limits: ConnectionLimits, fast_path: FastPath) -> None:
        request: RequestFields = headers.request
        self.method, self.target = request.method, request.path
        self.fault = _too_long(headers, request, limits) or _not_served(request)
        self.computes: tuple[HttpApi, RequestHead] | None = None
        self.expects = False
        self.long_bytes = headers.long_bytes
        self._authority, self._fields = request.authority, request.fields
        self.request_id = id_in(request.fields)
        if self.fault is None:
            usual = self.method == b"POST"
            for name, value in request.fields:
                if name in _UNUSUAL:
                    usual = False
                    self.expects |= name == b"expect" and value.lower() == b"100-continue"
            if usual:
                self.computes = fast_path.read(self.target, request.fields)
        self.probe = "" if fast_path.probes is None or self.fault else probe_of(self.method, self.target)

    @property
    def parent(self) -> ParentSpan | None:
        """The caller's span."""
        return parent_span(self._fields)

    def all_headers(self) -> Sequence[Header]:
        """The headers as the application is told them: with a Host, and with one Cookie (RFC 9113, section 8.2.3)."""
        if self._authority:
            headers = [(b"host", self._authority), *(each for each in self._fields if each[0] != b"host")]
        else:
            headers = list(self._fields)
        cookies = _cookies(headers)
        if len(cookies) > 1:
            headers = [*(each for each in headers if each[0] != b"cookie"), (b"cookie", b"; ".join(cookies))]
        return headers

    def __repr__(self) -> str:
        return f"<RestHead {self.method.decode('latin-1')} {self.target.decode('latin-1')}>"


def _cookies(fields: Sequence[Field]) -> list[bytes]:
    return [value for name, value in fields if name == b"cookie"]


def _too_long(headers: HeaderList, request: RequestFields, limits: ConnectionLimits) -> Fault | None:
    if headers.too_long:
        return Fault(431, f"The head of the request is longer than {limits.max_head_bytes} bytes")
    if len(request.method) + len(request.path) + _LINE_BYTES > MOST_REQUEST_LINE_BYTES:
        return Fault(414, f"The request line is longer than {MOST_REQUEST_LINE_BYTES} bytes")
    count, cookies = len(request.fields), len(_cookies(request.fields))
    if count - max(0, cookies - 1) > MOST_HEADERS:
        return Fault(431, f"The request has more than {MOST_HEADERS} headers")
    return None


def _not_served(request: RequestFields) -> Fault | None:
    if request.method not in _METHODS:
        return UNKNOWN_METHOD
    if not _PATH.fullmatch(request.path) and (request.method, request.path) != (b"OPTIONS", b"*"):
        return _BAD_PATH
    authority = request.authority
    hosts = [value for name, value in request.fields if name == b"host"]
    differ = authority and hosts and hosts[0] != authority
    if len(hosts) > 1 or differ or not all(map(HOST.fullmatch, (authority, *hosts))):
        return _HOSTS
    return None
