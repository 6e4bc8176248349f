"""The head of one HTTP/1.1 request, parsed by httptools while it arrives."""

from __future__ import annotations

import httptools

from app.transports.http.asgi import Header

EMPTY_LINE = b"\r\n\r\n"
_LINE_END = b"\r\n"

#: A head of which more than this arrived before its last piece is left to uvicorn (chosen: 8 times what servers accept
#: by default). A piece is what one read of the socket gave.
_MAX_BYTES = 64 * 1024

#: A request with one of these headers needs more than a plain body and a plain reply.
_UNUSUAL_HEADERS = frozenset({b"content-encoding", b"expect", b"transfer-encoding"})

_UPGRADE = b"upgrade"


class HeadParser:
    """Parses one head and keeps its bytes, so that another parser can read the request from its beginning.

    A header Upgrade is ignored, as RFC 9110 (section 7.8) allows, and left out of `raw`: Java's HttpClient asks for h2c
    with its first request, and httptools takes the body behind such a head for bytes of the other protocol.

    Attributes:
        raw: all bytes that were fed, what follows the head included, without a header Upgrade.
        end: the length of the head in `raw`, its empty line included; 0 while it is incomplete.
        usual: False as soon as the head is unusual or malformed. The other attributes then mean nothing.
        length: Content-Length; 0 without one, when there is no body (RFC 9112, section 6.3).
        headers: names in lower case, without Content-Length.
    """

    def __init__(self) -> None:
        self.raw = b""
        self.end = 0
        self.usual = True
        self.url = b""
        self.headers: list[Header] = []
        self.length = 0
        self.keep_alive = False
        self._complete = False
        self._upgrade = False
        self._parser = httptools.HttpRequestParser(self)

    def feed(self, data: bytes) -> bool:
        """True when the head is complete or known to be unusual; nothing may be fed after that."""
        start = len(self.raw)
        self.raw += data
        self.end = self.raw.find(EMPTY_LINE, max(0, start - len(EMPTY_LINE) + 1)) + len(EMPTY_LINE)
        if self.end < len(EMPTY_LINE):
            self.end = 0

        try:
            self._parser.feed_data(self.raw[start : self.end] if self.end else data)
        except httptools.HttpParserUpgrade:
            pass  # ignored
        except httptools.HttpParserError:
            self.usual = False

        # Both must find the same end. They differ, for example, after empty lines before the request.
        if self._complete != (self.end > 0) or len(self.raw) - len(data) > _MAX_BYTES:
            self.usual = False
        if self._upgrade and self._complete and self.end:
            self._leave_upgrade_out()
        return self._complete or not self.usual

    def _leave_upgrade_out(self) -> None:
        lines = self.raw[: self.end].split(_LINE_END)
        head = _LINE_END.join([line for line in lines if line.partition(b":")[0].lower() != _UPGRADE])
        self.raw, self.end = head + self.raw[self.end :], len(head)

    # --- httptools calls these ---

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-length":
            self.length = int(value)
        elif name == _UPGRADE:
            self._upgrade = True
        else:
            self.headers.append((name, value))
            if name in _UNUSUAL_HEADERS:
                self.usual = False

    def on_headers_complete(self) -> None:
        self._complete = True
        self.keep_alive = self._parser.should_keep_alive()
        if self._parser.get_method() != b"POST" or self._parser.get_http_version() != "1.1":
            self.usual = False
