"""What the limit of a container leaves for bodies, measured; and what is told of it at the start."""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf

from app.core.machine_memory import container_left_bytes, give_back
from app.transports.body_room import BodyRoom

logger = logging.getLogger("ferry")

#: Less by this much since the last look may be freed memory that malloc keeps: it is given back, and counts. Chosen.
_DROP_BYTES = 16 * 2**20


class ContainerMemory:
    """Tells how many bytes one of this many processes, or the only one, may still take.

    Freed memory that malloc keeps for the next request is the process's to take, but the system counts it as used.
    """

    def __init__(
        self,
        processes: int = 0,
        left: Callable[[], float] = container_left_bytes,
        give_back: Callable[[], None] = give_back,
    ) -> None:
        self._processes = max(1, processes)
        self._measure = left
        self._give_back = give_back
        self._last = -inf

    def __call__(self) -> float:
        left = self._measure()
        if left < self._last - _DROP_BYTES:
            self._give_back()
            left = self._measure()
        self._last = left
        return left / self._processes


def tell_largest_bodies(room: BodyRoom, max_body_bytes: int) -> None:
    """Says what is taken in place of `max_body_bytes`, if that does not fit into the container."""
    room.measure()
    if room.largest() < max_body_bytes:
        logger.warning(
            "The limit of this container leaves too little memory for bodies of max_body_bytes, %s: the largest that "
            "are taken have %s; send less at a time, or give the container more memory",
            f"{max_body_bytes:,}",
            room.told(),
        )
