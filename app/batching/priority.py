"""Priorities: offsets in time by which requests are ordered, beside their deadlines. No I/O, no clock.

Between lanes the earliest deadline is first. A deadline more than PATIENCE_S away counts as PATIENCE_S away, so a
request with much time, or without a deadline, waits at most that long for urgent ones, and none starves.

A priority is an offset in time. A request above the default level counts as having waited longer, one below as having
waited less: an urgent request overtakes those that arrived within its offset before it. Bulk requests are below all
levels: requests that come up to BULK_S later overtake them.
"""

from __future__ import annotations

#: A deadline further away than this counts as this far away, seconds. Chosen.
PATIENCE_S = 1.0

#: The level of a request without a priority; 1 is the highest, as in Triton's schedule policy.
DEFAULT_LEVEL = 5

#: Lower levels (greater numbers) count as this one. Chosen.
LOWEST_LEVEL = 10

#: The offset of one level, in seconds of waiting. Chosen.
LEVEL_S = 0.1

#: The priority of bulk requests, which every request overtakes that comes within this many seconds. Chosen.
BULK = -1
BULK_S = 20.0


def priority_offset_s(priority: int) -> float:
    """Seconds of offset of a priority: 1 is the highest, 0 is the default 5, above 10 counts as 10; BULK: -20 s."""
    if priority == BULK:
        return -BULK_S
    return (DEFAULT_LEVEL - min(priority or DEFAULT_LEVEL, LOWEST_LEVEL)) * LEVEL_S
