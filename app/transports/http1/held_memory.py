"""What one connection holds of the memory for clients: the body of its request, and a reply that is not read.

A body is counted from its head, if it does not come with it, until the request is answered: so it is rejected before it
is read. One longer than `max_body_bytes` counts as that: it is rejected, or a stream, which holds no more at a time. A
reply is counted while the socket takes no more of it. It is cut if, in `arrival_timeout_s`, the client reads less of it
than `min_body_bytes_per_s`: a client that reads nothing would hold it for ever.
"""

from __future__ import annotations

import asyncio

from app.transports.client_memory import ClientMemory
from app.transports.http1.limits import ConnectionLimits


class HeldMemory:
    """Of one connection. `body`: bytes that are held for the body of its request."""

    __slots__ = ("_limits", "_loop", "_timer", "_transport", "_unread", "body", "budget")

    def __init__(self, budget: ClientMemory, transport: asyncio.Transport, limits: ConnectionLimits) -> None:
        self.budget = budget
        self.body = 0
        self._transport = transport
        self._limits = limits
        self._unread = 0
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def take_body(self, size: int) -> bool:
        """Holds this many bytes more, `max_body_bytes` at most; False if there is no memory for them."""
        size = min(size, self._limits.max_body_bytes)
        if not self.budget.take_body(size):
            return False
        self.body += size
        return True

    def give_body(self) -> None:
        """The request is answered, or given up."""
        if self.body:
            self.budget.give_body(self.body)
            self.body = 0

    def reply_waits(self) -> None:
        """The client reads more slowly than it is written to."""
        self._count(self._transport.get_write_buffer_size())
        if self._timer is None:
            self._look_later()

    def reply_flows(self) -> None:
        self._count(0)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(self._limits.arrival_timeout_s, self._look)

    def _look(self) -> None:
        before, left = self._unread, self._transport.get_write_buffer_size()
        if before - left < self._limits.arrival_timeout_s * self._limits.min_body_bytes_per_s and left:
            self._transport.abort()
            return
        self._count(left)
        self._look_later()

    def _count(self, unread: int) -> None:
        self.budget.change_unread(unread - self._unread)
        self._unread = unread

    def __repr__(self) -> str:
        return f"<HeldMemory {self.body} bytes of a body, {self._unread} bytes unread>"
