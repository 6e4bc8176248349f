"""The head of one HTTP/1.x request, parsed by httptools while it arrives, and what its body will be."""

from __future__ import annotations

import re
from typing import Any

import httptools

from app.transports.http.asgi import Header
from app.transports.http.connections.connection_limits import (
    MOST_HEADERS,
    MOST_REQUEST_LINE_BYTES,
    ConnectionLimits,
)
from app.transports.http.head import HOST
from app.transports.http.replies import UNKNOWN_METHOD, Fault

EMPTY_LINE = b"\r\n\r\n"
_LINE_END = b"\r\n"

#: Around a value, of which they are no part (RFC 9110, section 5.5).
_BLANKS = b" \t"

#: A request with one of these headers needs more than a plain body and a plain reply.
_UNUSUAL_HEADERS = frozenset({b"content-encoding", b"expect", b"transfer-encoding"})

#: What HTTP/2 begins with: it is no method of HTTP/1.1 (RFC 9113, section 3.4).
HTTP2 = b"PRI "

_UPGRADE = b"upgrade"
_OTHER_METHOD = re.compile(rb"[A-Z]+(?: |\Z)")

#: What a target in the absolute form begins with (RFC 9112, section 3.2.2): its host is not empty (RFC 9110, 4.2.1).
_ABSOLUTE = re.compile(rb"[A-Za-z]+://(?:[^/?#@]*@)?(?=[^:/?#])%b(?=[/?#]|\Z)" % HOST.pattern)


_MALFORMED = Fault(400, "The request is no valid HTTP/1.1 (RFC 9112)")
_HOSTS = Fault(400, "A request of HTTP/1.1 has exactly one Host header, with a host and perhaps a port (RFC 9112, 3.2)")
_TARGET = Fault(400, "The target of a request is a path, or a URL with a host and perhaps a port (RFC 9112, 3.2)")
_VERSION = Fault(505, "HTTP/1.1 is spoken here, and HTTP/1.0")


class HeadParser:
    """Parses one head and keeps its bytes.

    A header Upgrade is left out of the headers: it is ignored, as RFC 9110 (section 7.8) allows. Java's HttpClient asks
    for HTTP/2 with its first request. Empty lines before the request line are ignored (RFC 9112, section 2.2).

    Attributes:
        raw: all bytes that were fed, what follows the head included, without empty lines before it.
        end: the length of the head in `raw`, its empty line included; 0 while it is incomplete.
        fault: why the request cannot be read; None if it can. The attributes below then mean nothing.
        usual: it may take the fast path.
        length: Content-Length; 0 without one, when there is no body (RFC 9112, section 6.3), or it is in chunks.
        sized: there is a Content-Length.
        chunked: the body comes in chunks.
        expects: the client waits for a 100 before it sends the body.
        headers: names in lower case, without Content-Length.
        limits: bounds on the size of a head.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.raw = b""
        self.end = 0
        self.fault: Fault | None = None
        self.usual = True
        self.method = b""
        self.version = ""
        self.target = b""
        self.headers: list[Header] = []
        self.length = 0
        self.sized = False
        self.chunked = False
        self.expects = False
        self.keep_alive = False
        self.limits = limits
        self._complete = False
        self._parser: Any = httptools.HttpRequestParser(self)  # None once the head is read

    def feed(self, data: bytes) -> bool:
        """True when the head is complete or at fault; nothing may be fed after that."""
        start = len(self.raw)
        self.raw += data
        if not start:
            self.raw = data = data.lstrip(_LINE_END)
        self.end = self.raw.find(EMPTY_LINE, max(0, start - len(EMPTY_LINE) + 1)) + len(EMPTY_LINE)
        if self.end < len(EMPTY_LINE):
            self.end = 0

        self.fault = self._too_long()
        if self.fault is None and data:
            self.fault = self._parse(self.raw[start : self.end] if self.end else data)
        if not self._complete and self.fault is None:
            return False
        self.drop()
        return True

    def drop(self) -> None:
        """Drops the parser, which refers to this object and so to all of its bytes."""
        self._parser = None

    def _too_long(self) -> Fault | None:
        """Checked before anything is parsed, so a parser never sees more than the limit."""
        most = self.limits.max_head_bytes
        line = self.raw.find(_LINE_END, 0, MOST_REQUEST_LINE_BYTES + len(_LINE_END))
        if line < 0 and len(self.raw) > MOST_REQUEST_LINE_BYTES:
            return Fault(414, f"The request line is longer than {MOST_REQUEST_LINE_BYTES} bytes")
        if (self.end or len(self.raw)) > most:
            return Fault(431, f"The head of the request is longer than {most} bytes")
        return None

    def _parse(self, data: bytes) -> Fault | None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # ignored
        except httptools.HttpParserInvalidMethodError:
            return UNKNOWN_METHOD if _OTHER_METHOD.match(self.raw) else _MALFORMED
        except httptools.HttpParserError:
            return _MALFORMED

        # Both must find the same end; they would differ where lines end with a bare line feed.
        if self._complete != (self.end > 0):
            return _MALFORMED
        return self._check_form() or self._check_body() if self._complete else None

    def _check_form(self) -> Fault | None:
        """Rejects what httptools accepts: more than one space, the names of other protocols, any number of hosts."""
        if self.version not in {"1.0", "1.1"}:
            return _VERSION
        if not self.raw.startswith(b"%b %b HTTP/" % (self.method, self.target)):
            return _MALFORMED
        if len(self.headers) > MOST_HEADERS:
            return Fault(431, f"The request has more than {MOST_HEADERS} headers")
        return UNKNOWN_METHOD if self.method == b"CONNECT" else self._check_host()

    def _check_host(self) -> Fault | None:
        """The host that the request is for, in its target and in its Host header."""
        if not (self.target.startswith((b"/", b"*")) or _ABSOLUTE.match(self.target)):
            return _TARGET
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) > 1 or (not hosts and self.version == "1.1") or not all(map(HOST.fullmatch, hosts)):
            return _HOSTS
        return None

    def _check_body(self) -> Fault | None:
        """How the body is framed (RFC 9112, section 6)."""
        codings = [value for name, value in self.headers if name == b"transfer-encoding"]
        if not codings:
            return None
        if self.sized or self.version != "1.1":
            return _MALFORMED
        if [coding.lower() for coding in codings] != [b"chunked"]:
            return Fault(501, "Transfer-Encoding: only chunked is supported, once")
        self.chunked = True
        return None

    def all_headers(self) -> list[Header]:
        """The headers as the application is told them: with Content-Length."""
        return [*self.headers, (b"content-length", b"%d" % self.length)] if self.sized else self.headers

    # --- httptools calls these ---

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name, value = name.lower(), value.rstrip(_BLANKS)  # httptools strips the left alone
        if name == b"content-length":
            self.length, self.sized = int(value), True
        elif name != _UPGRADE:
            self.headers.append((name, value))
            if name in _UNUSUAL_HEADERS:
                self.usual = False
                self.expects = self.expects or (name == b"expect" and value.lower() == b"100-continue")

    def on_headers_complete(self) -> None:
        self._complete = True
        self.method = self._parser.get_method()
        self.version = self._parser.get_http_version()
        options = b",".join([value for name, value in self.headers if name == b"connection"]).lower().split(b",")
        named = {option.strip() for option in options}
        self.keep_alive = b"close" not in named and (self.version == "1.1" or b"keep-alive" in named)
        if self.method != b"POST" or self.version != "1.1":
            self.usual = False
