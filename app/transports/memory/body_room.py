"""The memory that bodies may become: while they are read, computed and answered they take several times their size.

In a container the system kills a process that goes over the memory limit, with all of its requests. So the memory that
a long body may become is reserved before the body is read, out of the room that the container leaves:

1. The room is the memory that is left once models are loaded, less what serving needs otherwise. It is measured anew
   when nothing is reserved: models come and go, and connections take memory, too. While something is reserved it can
   only shrink.
2. A body is rejected for good (413) if it needs more than the largest room that was measured with nothing reserved
   since the start; else for now (503). So is a reply that is to be written (reply_room.py).
3. malloc keeps freed memory, which the container counts as used. It is given back a moment after the last reservation
   was, and before anything is rejected while nothing is reserved. Processes that wait for bodies to read end then,
   too; after the last reservation only if much is missing.
4. Where no container has a limit the room is infinite, and nothing is reserved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf, isfinite
from threading import Timer

from app.core.errors import BodyOverMemory, NoMemoryLeft, ServingError

#: Times its size that a body becomes at its peak, in all processes. Measured by the peak of the container, with a model
#: of digits and bodies of 32 MB: rows of one-digit numbers 12, base64 7, OIP's binary tensors 2, gRPC's messages 5 to
#: 8. Named rows of one-digit numbers take 22 and strings of one letter 47. Most of that is in the process that reads
#: them, which gets it only while there is room (`reading`).
JSON, BINARY = 16.0, 8.0

#: A process that reads a body may take so many times the body's reservation, while there is room. Chosen, see above.
_MOST_READING = 3.0

#: A shorter body reserves nothing. Chosen: it comes whole as a rule, and its tensors are counted in the queue.
SHORT_BYTES = 64 * 1024

#: What serving needs beside bodies: a process that reads them, small requests, connections. Chosen: such a process has
#: 25 MB of its own.
_SPARE_BYTES = 40 * 2**20

#: The part of the rest that bodies may become. Chosen: models differ in what a call takes.
_SHARE = 3 / 4

#: A shorter body is read with what one of this size may take.
_LEAST_READ_BYTES = 2**20

#: The least time between two measurements. Chosen: one takes 0.3 ms.
_MEASURED_S = 1.0

#: Memory is given back so long after the last reservation was. Chosen: by then the objects of the last request are
#: freed.
_FREED_S = 0.5

#: The part of the largest room below which processes that wait for bodies end with the last reservation. Chosen: one
#: has some 50 MB, and takes 0.3 s to start.
_ENOUGH = 3 / 4

_MB = 2**20

#: Calls a function after so many seconds.
Later = Callable[[float, Callable[[], None]], None]


def growth_of(fields: Sequence[tuple[bytes, bytes]], target: bytes = b"") -> float:
    """Times its size that a body over HTTP becomes.

    0 for a stream, which is not held as a whole; 1 for one that is compressed: what it is inflated to is reserved then.

    Args:
        fields: the fields of the head, names in lower case.
        target: path and query, as sent.
    """
    named = dict(reversed(fields))  # the first of several
    if target.partition(b"?")[0].endswith(b"predictStream"):
        return 0.0
    compressed = named.get(b"content-encoding", b"").strip().lower() not in {b"", b"identity"}
    return 1.0 if compressed else growth_of_content(fields)


def growth_of_content(fields: Sequence[tuple[bytes, bytes]]) -> float:
    """Times its size that a body becomes, after it was inflated."""
    named = dict(reversed(fields))
    if b"inference-header-content-length" in named:
        return BINARY
    kind = named.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return JSON if not kind or b"json" in kind or kind.startswith((b"text/", b"application/x-www-")) else BINARY


def unlimited() -> float:
    return inf


def nothing() -> None:
    """Gives no memory back."""


def in_thread(seconds: float, work: Callable[[], None]) -> None:
    """Calls it after so long, in a thread that holds up no end of the process."""
    timer = Timer(seconds, work)
    timer.daemon = True
    timer.start()


class BodyRoom:
    """The room in a container for what bodies become.

    Args:
        left: bytes that this process may still take; infinity without a limit.
        clock: monotonic seconds.
        give_back: returns freed memory to the system.
        later: calls a function after some seconds, in a thread.

    Attributes:
        limit: bytes that bodies may become together; infinity without a limit.
        unlimited: whether the last measurement found no limit: then nothing need be counted.
        end_idle: ends processes that wait for bodies to read.
        largest_limit: the largest `limit` since the start that was measured with nothing reserved.
        reserved: bytes that bodies under way may become.
    """

    def __init__(
        self,
        left: Callable[[], float] = unlimited,
        clock: Callable[[], float] = time.monotonic,
        give_back: Callable[[], None] = nothing,
        later: Later = in_thread,
    ) -> None:
        self._left = left
        self._clock = clock
        self._give_back = give_back
        self._later = later
        self._due_s = self._given_back_s = -inf
        self.end_idle: Callable[[], None] = nothing
        self._freeing = False  # memory is about to be given back
        self.limit = inf
        self.unlimited = False
        self.largest_limit = 0.0
        self.reserved = 0.0

    def cost(self, size: int, growth: float) -> float:
        """The bytes that a body of this size may become; 0 for one that reserves nothing."""
        return size * growth if size >= SHORT_BYTES else 0.0

    @contextmanager
    def reading(self, size: int) -> Iterator[float]:
        """Bytes that a process may take to read a body of this size, of which more than usual are reserved meanwhile.

        Infinity without a limit.
        """
        usual = max(size, _LEAST_READ_BYTES) * JSON
        more = max(0.0, min((_MOST_READING - 1) * usual, self.limit - self.reserved)) if isfinite(self.limit) else 0.0
        self.reserved += more
        try:
            yield usual + more if isfinite(self.limit) else inf
        finally:
            self.give(more)

    def take(self, cost: float) -> bool:
        """Reserves so many bytes more; False if there is no room for them."""
        if cost <= 0:
            return True
        self.measure()
        if self.reserved + cost > self.limit and not self._grows(cost):
            return False
        self.reserved += cost
        return True

    def give(self, cost: float) -> None:
        """Ends a reservation of so many bytes."""
        if cost <= 0:
            return
        self.reserved = max(0.0, self.reserved - cost)
        self.forget()
        if not self.reserved and isfinite(self.limit) and not self._freeing:
            self._freeing = True
            self._later(_FREED_S, self._free)

    def _grows(self, cost: float) -> bool:
        """Is there room for it, once freed memory was given back?"""
        now = self._clock()
        if self.reserved or now < self._given_back_s + _MEASURED_S:
            return False
        self._given_back_s = now
        self.end_idle()
        self._give_back()
        self.forget()
        self.measure()
        return cost <= self.limit

    def _free(self) -> None:
        """Gives freed memory back to the system, and ends idle processes if little room is left. Runs in a thread."""
        self._freeing = False
        self._give_back()
        if not self.reserved and self._room() < _ENOUGH * self.largest_limit:
            self.end_idle()
        self.forget()

    def is_limited(self) -> bool:
        """Has a container a limit?"""
        if self.unlimited:
            return False
        self.measure()
        return isfinite(self.limit)

    def forget(self) -> None:
        """The last measurement is out of date, if there is a limit: measure again before the next use."""
        if isfinite(self.limit):
            self._due_s, self.unlimited = -inf, False

    def measure(self) -> None:
        """Measures what is left, if that was not done just now."""
        now = self._clock()
        if now < self._due_s:
            return
        room = self._room()
        self.unlimited = not isfinite(room)
        self._due_s = inf if self.unlimited else now + _MEASURED_S  # a container without a limit gets none later
        self.limit = min(room, self.limit) if self.reserved else room
        if not self.reserved:
            self.largest_limit = max(self.largest_limit, room)

    def _room(self) -> float:
        return self.reserved + max(0.0, _SHARE * (self._left() - _SPARE_BYTES))

    def largest(self, growth: float = JSON) -> float:
        """Bytes of the largest body that can be taken."""
        return max(self.limit / growth, SHORT_BYTES - 1)

    def rejection(self, cost: float, more: float) -> ServingError | None:
        """Why `more` is not reserved for a body that may become `cost`; None if it can be."""
        if not more or self.reserved + more <= self.limit:
            return None
        room = f"{self.limit / _MB:,.0f} MB"
        if cost > max(self.limit, self.largest_limit):
            return BodyOverMemory(
                f"The body may take {cost / _MB:,.0f} MB of memory until it is answered, and the limit of this "
                f"server's container leaves {room} for that: a body of {self.told()}; send less at a time, or give "
                "the container more memory"
            )
        return NoMemoryLeft(
            f"Bodies under way may take {self.reserved / _MB:,.0f} of the {room} of memory that the limit of this "
            f"server's container leaves for them, and this one {cost / _MB:,.0f} MB; try again"
        )

    def reply_rejection(self, cost: float, held: float, what: str) -> ServingError:
        """Why the `cost` of `what` is not reserved; `held`: bytes of the outputs that are there."""
        room = f"{self.limit / _MB:,.0f} MB"
        if cost + held > max(self.limit, self.largest_limit):
            return BodyOverMemory(
                f"{what} would take {cost / _MB:,.0f} MB of memory, and the limit of this server's "
                f"container leaves {room} for that: send fewer rows at a time in the inputs ('instances' or 'inputs'), "
                f"ask for fewer outputs{' or for a binary format' if held else ''}, or give the container more "
                "memory"
            )
        return NoMemoryLeft(
            f"{what} would take {cost / _MB:,.0f} MB of memory, and bodies and replies under way may take "
            f"{self.reserved / _MB:,.0f} of the {room} that the limit of this server's container leaves; try again"
        )

    def told(self) -> str:
        """The largest bodies, in words; empty without a limit."""
        self.measure()
        if not isfinite(self.limit):
            return ""
        return f"{self.largest(JSON) / _MB:,.1f} MB of JSON, or {self.largest(BINARY) / _MB:,.1f} MB of binary tensors"

    def __repr__(self) -> str:
        return f"<BodyRoom {self.reserved:,.0f} of {self.limit:,.0f} bytes>"
