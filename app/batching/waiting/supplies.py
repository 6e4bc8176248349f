"""Supplies: calls that bring work when a device is free (nodes of trees, app/pipelines/fold). No I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable

#: A call that submits the work which stands ready, as one request or several.
Supply = Callable[[], None]


class Supplies:
    """The supplies that have work ready; each is called once.

    Args:
        failed: called if a supply raised, which is a bug; the other supplies are called all the same.

    Attributes:
        waiting: the supplies that are to be called.
        asking: whether supplies are being called.
        alone: whether the supply that is being called is the only one. Then its work may be computed at once; `Steps`
            then sets this to false, as no further call is computed in this turn of the loop.
    """

    __slots__ = ("_failed", "alone", "asking", "waiting")

    def __init__(self, failed: Callable[[str, Exception], None]) -> None:
        self._failed = failed
        self.waiting: list[Supply] = []
        self.asking = self.alone = False

    def ask(self, queued: Callable[[], bool]) -> bool:
        """Calls all supplies, and further ones that these add, until a request is queued or was computed at once.

        Args:
            queued: whether a request waits in the queue.

        Returns whether a call was computed at once.
        """
        self.asking, computed = True, False
        while self.waiting and not computed:
            supplies, self.waiting = self.waiting, []
            self.alone = alone = len(supplies) == 1
            for supply in supplies:
                try:
                    supply()
                except Exception as error:  # the other supplies are called, and waiting requests are computed
                    self._failed("What stands ready could not be queued", error)
            computed = alone and not self.alone
            self.alone = False
            if queued():  # else no request came into the queue: further supplies may have been added
                break
        self.asking = False
        return computed
