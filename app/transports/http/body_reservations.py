"""What is reserved for a body beside what its size lets expect: once it is inflated, or its strings are counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from app.transports.http.head import RequestHead
from app.transports.memory.body_room import BINARY, growth_of_content
from app.transports.memory.client_memory import ClientMemory


class Reserving(Protocol):
    """An AsgiExchange."""

    head: RequestHead
    reserved: float


def reserve_inflated(memory: ClientMemory, exchange: Reserving, size: int) -> None:
    """Memory for what this much of an inflated body may become. Raises NoMemoryLeft, BodyOverMemory."""
    cost = memory.room.cost(size, growth_of_content(exchange.head.headers))
    more = max(0.0, cost - exchange.reserved)
    if not memory.room.take(more):
        raise memory.rejection(cost, more)
    exchange.reserved += more


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
