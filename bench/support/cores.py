"""Separate cores for a server and its load generator: if both share one, each also measures the other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

Cores = frozenset[int]


def for_server_and_load() -> tuple[Cores, Cores]:
    """All but the last, and the last; the same one twice where there is no other."""
    cores = sorted(os.sched_getaffinity(0))
    return frozenset(cores[:-1] or cores), frozenset(cores[-1:])


@contextmanager
def on_cores(cores: Cores) -> Iterator[None]:
    """This thread, and the threads and processes that it starts meanwhile, run nowhere else."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
