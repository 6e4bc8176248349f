"""What stands ready outside the queue: it is asked for when a device is free (app/pipelines/fold). No I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable

#: Submits what is ready, as one request or several; returns nothing.
Supply = Callable[[], None]


class Supplies:
    """Those that have something, each called once.

    Args:
        failed: is told of one that raised, which is a bug; the others are called all the same.

    Attributes:
        asking: whether they are being called.
        alone: whether what is being submitted is all that stands ready. Then it may be computed at once.
    """

    __slots__ = ("_failed", "_waiting", "alone", "asking")

    def __init__(self, failed: Callable[[str, Exception], None]) -> None:
        self._failed = failed
        self._waiting: list[Supply] = []
        self.asking = self.alone = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, supply: Supply) -> None:
        self._waiting.append(supply)

    def computed(self) -> None:
        """What was submitted alone was computed at once. Nothing else is in this turn."""
        self.alone = False

    def ask(self, queued: Callable[[], bool]) -> bool:
        """Calls all, and those that these bring, until something waits in the queue or was computed at once.

        Args:
            queued: whether anything waits in the queue.

        Returns whether something was computed at once.
        """
        self.asking, computed = True, False
        while self._waiting and not computed:
            supplies, self._waiting = self._waiting, []
            self.alone = alone = len(supplies) == 1
            for supply in supplies:
                try:
                    supply()
                except Exception as error:  # others are supplied, and what waits is computed
                    self._failed("What stands ready could not be queued", error)
            computed = alone and not self.alone
            self.alone = False
            if queued():  # else none of it came into the queue: there may be more
                break
        self.asking = False
        return computed
