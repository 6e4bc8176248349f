"""The memory for what clients sent and for replies that they have not read: how much it is, and its parts."""

from __future__ import annotations

from math import inf

from app.core.machine_memory import available_bytes

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


def client_bytes(budget: int, processes: int = 1) -> int:
    """The part of the other half that each of this many processes has for bodies and replies."""
    return (budget - queue_bytes(budget)) // processes
