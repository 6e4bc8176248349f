"""Long replies are written in threads, once there is memory for that: seconds of JSON hold up no other request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from app.codecs.json.writing import takes_long
from app.core.inference import Array
from app.transports.http.replies import Sendable
from app.transports.memory.client_memory import ClientMemory
from app.transports.memory.reply_room import reserve_reply


class ReplyLater(NamedTuple):
    """A reply that is still being written, of these outputs, as JSON if `text`; empty if they are few."""

    written: Coroutine[Any, Any, Sendable]
    outputs: Mapping[str, Array] = MappingProxyType({})
    text: bool = True

    async def reserve(self, memory: ClientMemory) -> float:
        """Reserves what writing it takes: bytes to be given back. Raises BodyOverMemory, NoMemoryLeft."""
        try:
            return await reserve_reply(memory, self.outputs, text=self.text)
        except BaseException:
            self.written.close()
            raise


def written(outputs: Mapping[str, Array], write: Callable[[], Sendable], *, text: bool = True) -> Sendable | ReplyLater:
    """The reply that `write` makes of these outputs, in a thread if they are long."""
    return ReplyLater(asyncio.to_thread(write), outputs, text) if takes_long(outputs) else write()
