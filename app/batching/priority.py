"""Whose turn it is: deadlines and head starts. Pure.

Between lanes the earliest deadline goes first; one further away than PATIENCE_S counts as that far away, so who has
much time, or no deadline, waits at most that long for those who have little, and nobody starves.

Priorities are head starts. A level above the default counts as having waited longer, one below as having waited
less: urgent requests overtake, but only those that arrived within the head start before them.
"""

from __future__ import annotations

#: A deadline further away than this counts as this far away, seconds.
PATIENCE_S = 1.0

#: What a request without a priority has; 1 is the highest, as in Triton's schedule policy.
DEFAULT_LEVEL = 5

LOWEST_LEVEL = 10

#: What one level is worth, in seconds of waiting.
LEVEL_S = 0.1


def head_start_s(priority: int) -> float:
    """Seconds for a priority from 1, the highest; 0 is the default, and beyond the lowest is the lowest."""
    return (DEFAULT_LEVEL - min(priority or DEFAULT_LEVEL, LOWEST_LEVEL)) * LEVEL_S
