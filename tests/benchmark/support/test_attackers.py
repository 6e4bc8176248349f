from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from bench.support.attackers import _drip


class NoWriter:
    def write(self, data: bytes) -> None: ...


@pytest.mark.parametrize("turns", range(5))
def test_a_slow_client_ends_when_it_is_told_to_although_a_reply_comes_just_then(turns: int) -> None:
    async def main() -> None:
        reader = asyncio.StreamReader()
        slow = asyncio.create_task(_drip(reader, cast(Any, NoWriter()), b"", b""))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        reader.feed_eof()
        for _ in range(turns):
            await asyncio.sleep(0)
        if slow.cancel():
            with pytest.raises(asyncio.CancelledError):
                await slow

    asyncio.run(main())
