"""A policy for tests in which the sharing of calls must not follow from measured costs, that is, from the load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from app.batching.policy import SelfTuning
from app.server import engine
from bench.simulator.peer_policies import WorkConserving


@contextmanager
def all_waiting_rows() -> Iterator[None]:
    """The batchers of servers that start in this context take all rows that wait."""
    module: Any = engine
    module.SelfTuning = WorkConserving
    try:
        yield
    finally:
        module.SelfTuning = SelfTuning
