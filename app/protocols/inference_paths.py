"""Which URLs ask for a computation, and what all connections of a server share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from app.protocols.asgi import Header
from app.protocols.http_exchange import HttpProtocol

#: Finds the protocol that a path (as sent, percent-encoded) belongs to.
FindProtocol = Callable[[str], HttpProtocol | None]

#: The protocol, the path and the query.
Found = tuple[HttpProtocol, str, bytes]


class InferencePaths:
    """Which URLs of POST requests ask for a computation, and of which protocol; and what connections share.

    Args:
        headers: added to every reply.
    """

    def __init__(
        self, find: FindProtocol, headers: Sequence[Header] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.clock = clock
        self.find = lru_cache(maxsize=1024)(self._look_up)
        self._find = find
        self._headers = headers
        self._uvicorns: Sequence[Header] = ()
        self._lines = _lines(headers)

    def common_lines(self, uvicorns: Sequence[Header]) -> bytes:
        """The lines of every reply. uvicorn makes new headers of its own (the date) each second."""
        if uvicorns is not self._uvicorns:
            self._uvicorns = uvicorns
            self._lines = _lines((*self._headers, *uvicorns))
        return self._lines

    def _look_up(self, url: bytes) -> Found | None:
        """The protocol, the path and the query."""
        path, _, query = url.partition(b"?")
        if not path.startswith(b"/") or b"#" in url or not url.isascii():
            return None
        text = path.decode()
        protocol = self._find(text)
        return (protocol, text, query) if protocol is not None and protocol.computes("POST", text) else None


def _lines(headers: Iterable[Header]) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])
