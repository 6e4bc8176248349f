"""A connection as its server sees it, of any version of HTTP: when the server is full, and when it ends."""

from __future__ import annotations

import asyncio


class ServedConnection(asyncio.Protocol):
    """One connection of a client (connection_limits.py: `Waiting`)."""

    transport: asyncio.Transport

    @property
    def address(self) -> str:
        """The client's, without the port; empty on a Unix socket."""
        peer = self.transport.get_extra_info("peername")
        return str(peer[0]) if isinstance(peer, tuple) else ""

    @property
    def waits_since_s(self) -> float:
        """Monotonic second since which it waits for a whole head; inf if it has one, -inf after its last reply."""
        raise NotImplementedError

    def give_way(self) -> None:
        """Closes the connection, which has no request."""
        raise NotImplementedError

    @property
    def awaits_answer(self) -> bool:
        """Has the head of a request arrived, and not all of its reply been given?"""
        raise NotImplementedError

    @property
    def is_unread(self) -> bool:
        """Has a request, or a part of one, arrived that the event loop has not seen?"""
        raise NotImplementedError

    @property
    def may_bring_more(self) -> bool:
        """Has a request begun, or has none come yet?"""
        raise NotImplementedError

    def leave(self) -> None:
        """The server is about to drain, or drains: its client is told to go elsewhere, and served until it does."""
        raise NotImplementedError

    def close_if_idle(self, idle_s: float = 0.0) -> None:
        """Ends it before its client was told, if that has sent nothing for so many seconds.

        A client that sends a request just then finds an end, no reset. A new client is about to send one.
        """
        raise NotImplementedError

    def shutdown(self) -> None:
        """Closes the connection after the replies to requests whose head was read."""
        raise NotImplementedError
