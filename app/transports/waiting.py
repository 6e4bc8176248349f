"""Waiting, for a while at most, for what sets no event: connections that end, answers that leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

#: Chosen: how often it is looked, so that an end is not noticed late.
_LOOK_S = 0.01


async def wait_while(busy: Callable[[], object], end_s: float, look_s: float = _LOOK_S) -> None:
    """Returns once `busy` is false, or at this second of the event loop's clock."""
    clock = asyncio.get_running_loop().time
    while clock() < end_s and busy():  # noqa: ASYNC110 - what ends sets no event
        await asyncio.sleep(look_s)
