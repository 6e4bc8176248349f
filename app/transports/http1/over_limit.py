"""A connection beyond the limit: it gets 503, or GOAWAY over HTTP/2, unless it asks whether the server is alive.

So a server whose connections are all taken still answers probes. Few such connections exist at once (descriptors.py). A
further one ends the oldest without a reply: probes send their request at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from app.transports.descriptors import beyond_http_connections
from app.transports.http.connections.connection_limits import ConnectionLimits
from app.transports.http.probes import probe_of
from app.transports.http.replies import Fault
from app.transports.http1.head_parser import HTTP2, HeadParser
from app.transports.http1.status_lines import closing_reply
from app.transports.http2.frames import ErrorCode, goaway, settings
from app.transports.lingering import Lingering

#: Seconds that the head of each may take (chosen).
_HEAD_S = 5.0


class OverLimit(asyncio.Protocol):
    """Reads one head.

    Args:
        reason: why the connection is rejected.
        common: makes the header lines of every reply.
        serve: takes the connection, with the bytes of a request that is answered all the same.
    """

    _all: ClassVar[dict[OverLimit, None]] = {}  # of this process, the oldest first

    def __init__(
        self,
        transport: asyncio.Transport,
        reason: str,
        limits: ConnectionLimits,
        common: Callable[[], bytes],
        serve: Callable[[bytes], None],
    ) -> None:
        self._transport = transport
        self._reason = reason
        self._common = common
        self._serve = serve
        self._head = HeadParser(limits)
        OverLimit._all[self] = None
        self._timer = asyncio.get_running_loop().call_later(_HEAD_S, transport.abort)
        transport.set_protocol(self)
        if len(OverLimit._all) > beyond_http_connections():
            next(iter(OverLimit._all)).abort()

    def data_received(self, data: bytes) -> None:
        head = self._head
        if not head.feed(data):
            return
        if head.fault is None and probe_of(head.method, head.target):
            self._leave()
            self._serve(head.raw)
            return
        self._timer.cancel()
        if head.raw.startswith(HTTP2):
            self._transport.write(settings(()) + goaway(0, ErrorCode.NO_ERROR, self._reason))
        else:
            self._transport.write(closing_reply(Fault(503, self._reason), self._common()))
        Lingering(self._transport, self.connection_lost)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._leave()

    def abort(self) -> None:
        self._leave()
        self._transport.abort()

    def _leave(self) -> None:
        OverLimit._all.pop(self, None)
        self._timer.cancel()
        self._head.drop()
