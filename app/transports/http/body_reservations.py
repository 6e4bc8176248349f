"""The memory that is reserved for a body whose strings are counted, beyond what its size lets expect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app.transports.memory.body_room import BINARY
from app.transports.memory.client_memory import ClientMemory


@contextmanager
def reserved(memory: ClientMemory | None, made: float, size: int) -> Iterator[None]:
    """While a binary body of this size is read: what is made of it, beyond what its size lets expect.

    Raises:
        NoMemoryLeft, BodyOverMemory: there is no room for that.
    """
    expected = BINARY * size
    more = max(0.0, made - expected)
    if memory is None or not more or not memory.room.is_limited():
        yield
        return
    if not memory.room.take(more):
        raise memory.rejection(made, more)
    try:
        yield
    finally:
        memory.room.give(more)
