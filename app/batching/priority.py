"""Whose turn it is: deadlines and head starts. Pure.

Between lanes the earliest deadline goes first; one further away than PATIENCE_S counts as that far away, so who has
much time, or no deadline, waits at most that long for those who have little, and nobody starves.

Priorities are head starts. A level above the default counts as having waited longer, one below as having waited
less: urgent requests overtake, but only those that arrived within the head start before them. Bulk work is below all
levels: whoever comes while it waits goes first, until it has waited so long that it would starve.
"""

from __future__ import annotations

#: A deadline further away than this counts as this far away, seconds.
PATIENCE_S = 1.0

#: What a request without a priority has; 1 is the highest, as in Triton's schedule policy.
DEFAULT_LEVEL = 5

LOWEST_LEVEL = 10

#: What one level is worth, in seconds of waiting.
LEVEL_S = 0.1

#: The priority of work in bulk, which waits for everybody who comes within so many seconds behind it.
BULK = -1
BULK_S = 20.0


def priority_offset_s(priority: int) -> float:
    """Seconds for a priority from 1, the highest; 0 is the default, beyond the lowest is the lowest; or for BULK."""
    if priority == BULK:
        return -BULK_S
    return (DEFAULT_LEVEL - min(priority or DEFAULT_LEVEL, LOWEST_LEVEL)) * LEVEL_S
