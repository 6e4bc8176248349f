"""The drain of a batcher: new requests are rejected, and every accepted one is answered."""

from __future__ import annotations

import asyncio

from app.batching.devices import DeviceSlots
from app.batching.isolation import Isolations
from app.batching.queue import RequestQueue


class Drain:
    """The drain: it is over when no accepted request is left. Made on the event loop.

    Attributes:
        begun: whether new requests are rejected, and all waiting ones are due.
        flows: the number of accepted requests of several steps that are not answered. Between two steps they are
            neither in the queue nor in flight.
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
        """Whether no request waits, and no batch is in flight or isolated. May be read from any thread."""
        return not (self._queue.rows or self.flows or self._isolations.open) and self._slots.idle

    @property
    def over(self) -> bool:
        """Whether the drain has begun and every accepted request is answered."""
        return self._over.done()

    def check(self) -> None:
        """Ends the drain if it has begun and no request is left. To be called whenever the last one may have ended."""
        if self.begun and self.idle and not self._over.done():
            self._over.set_result(None)

    async def wait(self) -> None:
        """Waits until it is over."""
        await asyncio.shield(self._over)
