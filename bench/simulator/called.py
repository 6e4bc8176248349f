"""Which calls of a model a server made, read from Server-Timing in its replies."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from app.bench.load_connection import ServerReply

_TIMING = re.compile(r'compute;dur=([\d.]+), batch;desc="(\d+)"')


class Call(NamedTuple):
    """`rows` without padding."""

    rows: int
    seconds: float


class Called:
    """Hears all replies to requests of one row each."""

    def __init__(self) -> None:
        self._replies = Counter[Call]()

    def hear(self, reply: ServerReply, _latency_s: float) -> None:
        """Those that were rejected have no timing."""
        timing = _TIMING.search(reply.headers.get("server-timing", ""))
        if timing is not None:
            self._replies[Call(int(timing[2]), float(timing[1]) / 1e3)] += 1

    def calls(self) -> list[Call]:
        """Each has as many replies as rows; two that took the same time, to the microsecond, have twice as many."""
        return [call for call, replies in self._replies.items() for _ in range(max(1, round(replies / call.rows)))]
