"""What gRPC calls hold of the memory for clients: long messages until they are answered, long replies until they end.

A reply is given to gRPC as a whole, which sends it as its reader allows, and its call ends when the last of it is sent.
A client that reads nothing would hold it for ever, and gRPC lets nobody end such a call: so its connection is shut down
(slow_readers.py).
"""

from __future__ import annotations

from typing import Any

import grpc

from app.core.errors import ServingError
from app.transports.grpc.slow_readers import SlowReaders, Watch
from app.transports.memory.client_memory import ClientMemory

#: Messages and replies from this size on are counted. Chosen: HTTP's bodies, too, are seldom read at once from here on.
LONG_BYTES = 64 * 1024

#: gRPC copies a reply, and keeps what it copied.
_COPIES = 2


class HeldMessages:
    """Counts the long messages and replies of all gRPC calls of a process.

    Args:
        memory: what they share with bodies and replies of HTTP.
        slow_readers: are asked to end connections that take no more of a reply; None leaves them.
    """

    def __init__(self, memory: ClientMemory | None = None, slow_readers: SlowReaders | None = None) -> None:
        self.memory = memory or ClientMemory()
        self.slow_readers = slow_readers

    @property
    def full(self) -> bool:
        return self.memory.full

    def take_message(self, context: grpc.aio.ServicerContext[bytes, bytes], size: int) -> int:
        """How much is held for it, to be given back; 0 for one that is short, or that its connection counts.

        Raises:
            NoMemoryLeft: there is no room for it.
        """
        if size < LONG_BYTES or getattr(context, "counts_memory", False):
            return 0
        if not self.memory.take_body(size):
            raise self.memory.rejection()
        return size

    def give_message(self, held: int) -> None:
        if held:
            self.memory.give_body(held)

    def take_reply(self, context: grpc.aio.ServicerContext[bytes, bytes], size: int) -> HeldReply | None:
        """Holds a reply until it is told to end; None for one that is short, or that its connection counts.

        Raises:
            NoMemoryLeft: there is no room for it.
        """
        if getattr(context, "counts_memory", False):
            self.check_room(size)
            return None
        if size < LONG_BYTES:
            return None
        size *= _COPIES
        if not self.memory.take_reply(size):
            raise self.memory.rejection()
        watch = None if self.slow_readers is None else self.slow_readers.watch(context.peer())
        return HeldReply(self.memory, size, watch)

    def check_room(self, size: int) -> None:
        """For a reply that its connection counts itself. Raises NoMemoryLeft."""
        if (size >= LONG_BYTES or self.memory.full) and not self.memory.has_room(size):
            raise self.memory.rejection()

    def rejection(self) -> ServingError:
        return self.memory.rejection()


class HeldReply:
    """A long reply that gRPC has and has not sent."""

    __slots__ = ("_memory", "_size", "_watch")

    def __init__(self, memory: ClientMemory, size: int, watch: Watch | None) -> None:
        self._memory = memory
        self._size = size
        self._watch = watch

    def end(self, _: Any = None) -> None:
        """It was sent, or its client has gone; gRPC calls this with the context."""
        self._memory.change_unread(-self._size)
        if self._watch is not None:
            self._watch.cancel()
