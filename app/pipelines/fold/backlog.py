"""The backlog of a large request: its ready nodes that are not in the common pool yet, in order. No I/O, no clock.

A backlog is sorted runs, each at least twice as long as the next: pushed nodes become a run, and runs of like length
are merged. So a node is merged O(log n) times, and a pop looks at the heads of O(log n) runs. All of it is numpy.
"""

from __future__ import annotations

import numpy as np

from app.pipelines.fold.forest import Numbers


class Backlog:
    """A set of different numbers, the least of which are popped first."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[Numbers] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def push(self, keys: Numbers) -> None:
        runs = self._runs
        runs.append(np.sort(keys))
        while len(runs) > 1 and len(runs[-2]) < 2 * len(runs[-1]):
            merged = np.concatenate((runs.pop(), runs.pop()))
            merged.sort(kind="stable")  # a stable sort merges sorted runs
            runs.append(merged)

    def pop(self, count: int) -> Numbers:
        """The least keys, at most `count` of them, sorted."""
        least = np.concatenate([run[:count] for run in self._runs] or [np.empty(0, np.intp)])
        least.sort()
        least = least[:count]
        if least.size:
            rest = [run[run.searchsorted(least[-1], side="right") :] for run in self._runs]
            self._runs = [run for run in rest if run.size]
        return least

    def __repr__(self) -> str:
        return f"<Backlog of {len(self)} nodes in {len(self._runs)} runs>"
