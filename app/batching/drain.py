"""The end of a batcher: nothing new is accepted, and everything that was accepted is answered."""

from __future__ import annotations

import asyncio

from app.batching.devices import DeviceSlots
from app.batching.isolation import Isolations
from app.batching.queue import RequestQueue


class Drain:
    """Knows when nothing accepted is left. Made on the event loop.

    Attributes:
        begun: whether new requests are rejected, and all that waits is due.
        flows: how many requests of several steps were accepted and are not answered. Between two steps they are neither
            in the queue nor in flight.
    """

    def __init__(self, queue: RequestQueue, slots: DeviceSlots, isolations: Isolations) -> None:
        self._queue = queue
        self._slots = slots
        self._isolations = isolations
        self._over = asyncio.get_running_loop().create_future()
        self.begun = False
        self.flows = 0

    @property
    def idle(self) -> bool:
        """Whether nothing waits and no batch is in flight or being isolated. May be read from any thread."""
        return not (self._queue.rows or self.flows or self._isolations) and self._slots.idle

    @property
    def over(self) -> bool:
        """Whether it has begun and everything accepted is answered."""
        return self._over.done()

    def check(self) -> None:
        """To be called whenever something accepted may have been the last."""
        if self.begun and self.idle and not self._over.done():
            self._over.set_result(None)

    async def wait(self) -> None:
        """Waits until it is over."""
        await asyncio.shield(self._over)
