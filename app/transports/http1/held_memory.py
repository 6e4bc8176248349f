"""The memory for clients that one connection holds: the body of its request, and a reply that is not read.

A body is counted from its head, if it does not come with it, until the request is answered: so it is rejected before it
is read. A body longer than `max_body_bytes` counts as that many bytes: it is rejected, or it is a stream, which holds
no more at a time. A reply is counted while the socket takes no more of it.

A client that reads nothing would hold its reply's memory for ever. So a reply that waits has `arrival_timeout_s`, and a
second more for each `min_body_bytes_per_s` that the client's kernel has taken; its deadline is never more than
`arrival_timeout_s` ahead. After that the connection is aborted. What the server's kernel takes says little about the
client: it keeps 4 MB and takes more only when a third of them have left, which takes two minutes at that rate.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import inf

from app.core.errors import ServingError
from app.transports.http.connections.connection_limits import ConnectionLimits
from app.transports.lingering import untaken
from app.transports.memory.client_memory import ClientMemory

#: Seconds between two looks at a reply that is read slowly. Chosen.
_LEAST_PAUSE_S = 1.0


class HeldMemory:
    """The memory for clients that one HTTP/1.1 connection holds.

    Attributes:
        body: bytes that are held for the body of its request.
        cost: bytes that are reserved for what it may become.
    """

    def __init__(self, budget: ClientMemory, transport: asyncio.Transport, limits: ConnectionLimits) -> None:
        self.budget = budget
        self.body = 0
        self.cost = self._wanted = 0.0
        self._transport = transport
        self._limits = limits
        self._unread = 0  # bytes of a reply that count
        self._untaken = 0  # bytes of it that the client's kernel did not have at the last look
        self._due_s = inf  # when the client reads too slowly
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def take_body(self, size: int, growth: float) -> bool:
        """Holds this many bytes more, `max_body_bytes` at most; False if there is no memory for them.

        `growth`: times its size that the body may become.
        """
        size = min(size, self._limits.max_body_bytes)
        room = self.budget.room
        self._wanted = room.cost(self.body + size, growth)
        more = max(0.0, self._wanted - self.cost)
        if not room.take(more):
            return False
        self.cost += more
        if not self.budget.take_body(size):
            return False
        self.body += size
        return True

    def rejection(self) -> ServingError:
        """Why `take_body` holds no more."""
        return self.budget.rejection(self._wanted, max(0.0, self._wanted - self.cost))

    def give_body(self) -> None:
        """The request is answered, or given up."""
        if self.cost:
            self.budget.room.give(self.cost)
            self.cost = 0.0
        if self.body:
            self.budget.give_body(self.body)
            self.body = 0

    def reply_waits(self) -> None:
        """The reply waits, since the client reads more slowly than the server writes."""
        self._count(self._transport.get_write_buffer_size())
        if self._timer is None:
            self._untaken = untaken(self._transport)
            self._due_s = self._loop.time() + self._limits.arrival_timeout_s
            self._look_later()

    def reply_flows(self) -> None:
        self._count(0)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        pause_s = max(self._due_s - self._loop.time(), _LEAST_PAUSE_S)
        self._timer = self._loop.call_later(pause_s, self._look)

    def _look(self) -> None:
        left = self._transport.get_write_buffer_size()
        if left:  # else the socket may be closed, and another one have its descriptor
            with suppress(OSError):  # it is about to be told that the connection is lost
                self._give_time()
            if self._loop.time() >= self._due_s:
                self._transport.abort()
                return
        self._count(left)
        self._look_later()

    def _give_time(self) -> None:
        before, self._untaken = self._untaken, untaken(self._transport)
        taken_s = (before - self._untaken) / self._limits.min_body_bytes_per_s
        self._due_s = min(self._due_s + max(0.0, taken_s), self._loop.time() + self._limits.arrival_timeout_s)

    def _count(self, unread: int) -> None:
        self.budget.change_unread(unread - self._unread)
        self._unread = unread

    def __repr__(self) -> str:
        return f"<HeldMemory {self.body} bytes of a body, {self._unread} bytes unread>"
