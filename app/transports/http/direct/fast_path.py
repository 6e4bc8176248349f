"""The fast path of a server: the rule by which connections answer requests themselves, and the parts that they share.

A request takes the fast path if all of this is true; else the application answers it by ASGI:

- it is an HTTP/1.1 POST with a head that can be read,
- it has none of the headers Content-Encoding, Expect and Transfer-Encoding (`head_parser.py`),
- its URL has at most 1024 bytes, all ASCII, begins with "/" and has no "#",
- its URL asks a protocol for a computation (`HttpApi.computes`),
- it names no charset but UTF-8,
- where a credential is needed, it has one that may send it (what is rejected takes no place in a cache of heads),
- its body is not longer than `max_body_bytes`,
- the client reads: no earlier reply is stuck in the socket (`Http1Connection`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache

from app.access import credentials
from app.access.access import Access
from app.codecs.charsets import names_another
from app.core.bounded_cache import BoundedCache
from app.core.burst import Burst
from app.core.errors import ServingError
from app.transports.http.asgi import Header
from app.transports.http.connections.server_fields import ServerFields
from app.transports.http.direct.reply_buffer import ReplyBuffer
from app.transports.http.direct.request_coalescer import RequestCoalescer
from app.transports.http.head import READ_FIELDS, RequestHead
from app.transports.http.http_api import HttpApi
from app.transports.http.probes import Probes
from app.transports.http.replies import header_lines
from app.transports.memory.client_memory import ClientMemory

#: Finds the protocol that a path (as sent, percent-encoded) belongs to.
FindProtocol = Callable[[str], HttpApi | None]

#: Chosen: at most this many heads are known, with this many bytes of what is read of each: at most 2 MiB of each kind.
MAX_HEADS = 1024

#: Fields that are read and hold more bytes in all are not cached: at most 2 MiB (chosen).
_MAX_READ_BYTES = 2048

#: Longer URLs are not cached and not answered here (chosen; the longest inference path is far below).
_MAX_URL_BYTES = 1024


class FastPath:
    """Decides which requests take the fast path, and holds what the connections of a server share.

    Args:
        find: the protocol of a path, or None.
        headers: added to every reply on it.
        clock: monotonic seconds.
        memory: the memory for bodies and replies of all connections.
        burst: see RequestCoalescer.
        access: says which callers may send what; None if every caller may send all.
        probes: answered by connections before all else; None if the application answers them.

    Attributes:
        lines: the header lines of every reply on it, of HTTP/1.1.
        leaving: the server is about to drain: a new connection is closed after its first reply.
    """

    def __init__(
        self,
        find: FindProtocol,
        headers: Sequence[Header] = (),
        clock: Callable[[], float] = time.monotonic,
        memory: ClientMemory | None = None,
        burst: Burst | None = None,
        *,
        access: Access | None = None,
        probes: Probes | None = None,
    ) -> None:
        # What connections use.
        self.clock = clock
        self.memory = memory or ClientMemory()
        self.reply_buffer = ReplyBuffer()
        self.coalescer = RequestCoalescer(self.reply_buffer, clock, burst or Burst(clock))
        self.leaving = False
        self.probes = probes

        # Which URLs ask for a computation.
        self._find = find
        self._route = lru_cache(maxsize=1024)(self._look_up)

        # The heads that protocols read.
        self._access = access
        self.credentials: Collection[bytes] = () if access is None else credentials.FIELDS
        self._read_names = READ_FIELDS.union(self.credentials)
        self._heads: BoundedCache[tuple[object, ...], RequestHead] = BoundedCache(MAX_HEADS)
        self._alike: BoundedCache[tuple[object, ...], object] = BoundedCache(MAX_HEADS)  # by what is no credential

        # The fields of every reply.
        self.headers = headers
        self.lines = ServerFields(header_lines, headers)

    def read(self, url: bytes, headers: Sequence[Header]) -> tuple[HttpApi, RequestHead] | None:
        """The API and the head of a POST with these headers, if it asks for a computation that its credential allows.

        None if its body has to be converted. The same head for all that mean the same.
        """
        route = None if len(url) > _MAX_URL_BYTES else self._route(url)
        if route is None:
            return None
        protocol, path, query = route
        rule = protocol.options.callers
        caller = b"" if rule is None else rule.header
        read = [each for each in headers if each[0] in self._read_names or each[0] == caller]
        head = self._head(protocol, path, query, read)
        return None if head is None else (protocol, head)

    def _head(self, protocol: HttpApi, path: str, query: bytes, headers: Sequence[Header]) -> RequestHead | None:
        """The same object for requests that differ in nothing that a protocol reads; None if it does not come here."""
        key = (path, query, *headers)
        head = self._heads.get(key)
        if head is None:
            head = RequestHead("POST", path, query, headers)
            if names_another(head.header(b"content-type")):
                return None
            known = sum([len(name) + len(value) for name, value in headers]) <= _MAX_READ_BYTES
            if self._access is not None:
                need = protocol.needs("POST", path)
                try:
                    head.permit = self._access.permit(headers, need)
                except ServingError:  # the application tells the caller
                    return None
                if need.model and known:  # else the caller decides which model it is
                    asked = path, query, *[each for each in headers if each[0] not in credentials.FIELDS]
                    head.alike = self._alike.get(asked) or self._alike.keep(asked, head.alike)
            if known:
                self._heads.keep(key, head)
        return head

    def _look_up(self, url: bytes) -> tuple[HttpApi, str, bytes] | None:
        """The protocol, the path and the query; None for a URL that asks for no computation."""
        path, _, query = url.partition(b"?")
        if not path.startswith(b"/") or b"#" in url or not url.isascii():
            return None
        text = path.decode()
        protocol = self._find(text)
        return (protocol, text, query) if protocol is not None and protocol.computes("POST", text) else None
