"""What a piece of work costs, by measures that do not depend on the machine's load: CPU seconds and resident memory.

CPU seconds are compared with those of a loop that runs just before and after. So a slow core, or one that is shared,
counts as a fast one does: the loop's turn is taken to be `TURN_NS`, what it takes a core of 2023 at 4 GHz. One that is
faster counts as it is, since it need not be as much faster at all else.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

TURN_NS = 25.0
_TURNS = 4000
_LIBC = ctypes.CDLL(None)


class Cost(NamedTuple):
    """`ns` of CPU, as on that core; `memory`: the most resident bytes beyond those at the start."""

    ns: float
    memory: int


def cost_of(work: Callable[[], object]) -> Cost:
    _LIBC.malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _resident("VmRSS")
    turn_s = _turn_s()
    started = time.thread_time()
    kept = work()
    seconds = time.thread_time() - started
    peak = _resident("VmHWM")
    del kept
    slower = max(1.0, 1e9 * (turn_s + _turn_s()) / 2 / TURN_NS)
    return Cost(1e9 * seconds / slower, peak - before)


def _turn_s() -> float:
    """Seconds of CPU for one turn of the loop."""
    started = time.thread_time()
    total = 0
    for number in range(_TURNS):
        total += number & 7
    return (time.thread_time() - started) / _TURNS


def _resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise AssertionError(field)
