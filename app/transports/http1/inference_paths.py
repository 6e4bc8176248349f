"""Which URLs ask for a computation, and what all connections of a server share."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

from app.transports.http.asgi import Header
from app.transports.http.exchange import HttpProtocol
from app.transports.http.head import RequestHead
from app.transports.http.replies import header_lines
from app.transports.http1.coalescing import Coalescer
from app.transports.http1.interrupt_moderation import InterruptModeration
from app.transports.http1.reply_buffer import ReplyBuffer

#: Finds the protocol that a path (as sent, percent-encoded) belongs to.
FindProtocol = Callable[[str], HttpProtocol | None]

#: The protocol, the path and the query.
Found = tuple[HttpProtocol, str, bytes]

Key = TypeVar("Key")
Value = TypeVar("Value")

#: This many heads are kept, each of at most so many bytes.
_MAX_HEADS, _MAX_HEAD_BYTES = 1024, 2048


class KnownHead(NamedTuple):
    """The head of a request that took the short cut, and the length of the body behind it."""

    protocol: HttpProtocol
    head: RequestHead
    length: int
    keep_alive: bool


class InferencePaths:
    """Which URLs of POST requests ask for a computation, and of which protocol; and what connections share.

    Args:
        headers: added to every reply.
    """

    def __init__(
        self, find: FindProtocol, headers: Sequence[Header] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.clock = clock
        self.reply_buffer = ReplyBuffer()
        self.turn = Coalescer(self.reply_buffer)
        self.interrupt_moderation = InterruptModeration(clock)
        self.find = lru_cache(maxsize=1024)(self._look_up)
        self._find = find
        self._headers = headers
        self._known: dict[bytes, KnownHead] = {}
        self._heads: dict[tuple[object, ...], RequestHead] = {}
        self._uvicorns: Sequence[Header] = ()
        self._lines = header_lines(headers)

    def head(self, path: str, query: bytes, headers: Sequence[Header]) -> RequestHead:
        """One and the same for requests that differ in nothing but their length."""
        key = (path, query, *headers)
        head = self._heads.get(key)
        if head is None:
            head = RequestHead("POST", path, query, headers)
            if sum([len(name) + len(value) for name, value in headers]) <= _MAX_HEAD_BYTES:
                _keep(self._heads, key, head)
        return head

    def known(self, head: bytes) -> KnownHead | None:
        """What these very bytes, empty line included, were read as before."""
        return self._known.get(head)

    def keep(self, head: bytes, known: KnownHead) -> None:
        """Nothing that is no whole head, or a long one."""
        if head.endswith(b"\r\n\r\n") and len(head) <= _MAX_HEAD_BYTES:
            _keep(self._known, head, known)

    def common_lines(self, uvicorns: Sequence[Header]) -> bytes:
        """The lines of every reply. uvicorn makes new headers of its own (the date) each second."""
        if uvicorns is not self._uvicorns:
            self._uvicorns = uvicorns
            self._lines = header_lines((*self._headers, *uvicorns))
        return self._lines

    def _look_up(self, url: bytes) -> Found | None:
        """The protocol, the path and the query."""
        path, _, query = url.partition(b"?")
        if not path.startswith(b"/") or b"#" in url or not url.isascii():
            return None
        text = path.decode()
        protocol = self._find(text)
        return (protocol, text, query) if protocol is not None and protocol.computes("POST", text) else None


def _keep(heads: dict[Key, Value], key: Key, value: Value) -> None:
    if len(heads) >= _MAX_HEADS:
        heads.clear()
    heads[key] = value
