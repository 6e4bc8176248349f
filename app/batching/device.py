"""The seam between the batcher and whatever carries out a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Device(Protocol):
    """Carries out one piece of work at a time, off the event loop."""

    @property
    def name(self) -> str: ...

    @property
    def replica(self) -> int:
        """Which replica of each model its batches run on; devices may have one in common."""

    @property
    def hardware(self) -> int:
        """What it computes on; devices of one number share that, and slow each other down."""

    def start(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Runs `work`, which never raises, and then calls `done` with its result on the event loop."""

    def failure(self, now: float) -> str:
        """Why the device is dead or stuck; empty while it is well."""

    def close(self) -> None:
        """Ends the thread behind it once its work is done. Nothing may be started any more."""
