"""The memory budget for what clients send and for replies that they have not read, and its parts.

In a container with a limit the inflated bodies count, too (app/transports/memory/body_room.py); they are measured here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf

from app.core.machine_memory import available_bytes, container_left_bytes, give_back
from app.transports.memory.body_room import BodyRoom

logger = logging.getLogger("ferry")

MEGABYTE = 1024 * 1024

#: Where the system does not say how much memory there is. Chosen.
_UNKNOWN_BYTES = 16 * 1024 * MEGABYTE

#: The part of the memory that is left at the start. Chosen: models, calls and copies need the rest.
_PART = 4


def budget_bytes(configured_mb: int) -> int:
    """The setting `memory_budget_mb` in bytes; 0 stands for a quarter of the memory that can be taken now."""
    if configured_mb:
        return configured_mb * MEGABYTE
    available = available_bytes()
    return max(MEGABYTE, int(available if available < inf else _UNKNOWN_BYTES) // _PART)


def queue_bytes(budget: int) -> int:
    """The half of the budget that is for tensors in the queue."""
    return budget // 2


def client_bytes(budget: int, frontends: int = 0) -> int:
    """The bytes of the other half, for bodies and replies, in a process. `frontends` 0: the only process."""
    return (budget - queue_bytes(budget)) // max(1, frontends)


def container_room(processes: int = 0, left: Callable[[], float] = container_left_bytes) -> BodyRoom:
    """The room for bodies of one process. `processes` share what the container leaves; 0: the only process."""
    processes = max(1, processes)
    return BodyRoom(lambda: left() / processes, give_back=give_back)


def tell_largest_bodies(room: BodyRoom, max_body_bytes: int) -> None:
    """Logs the largest bodies that are taken, if `max_body_bytes` does not fit into the container."""
    room.measure()
    if room.largest() < max_body_bytes:
        logger.warning(
            "The limit of this container leaves too little memory for bodies of max_body_bytes, %s: the largest that "
            "are taken have %s; send less at a time, or give the container more memory",
            f"{max_body_bytes:,}",
            room.told(),
        )
