from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

import pytest

from app.bench.open_loop import NO_ANSWER, OpenLoopResult
from bench.support.attackers import _drip, faults_of


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


@pytest.mark.parametrize(("unsent", "lost"), [(0, 10), (7, 3), (10, 0)])
def test_requests_that_the_generator_could_not_send_are_no_lost_answers(unsent: int, lost: int) -> None:
    failures = Counter({NO_ANSWER: 10, "status 503": 5, "status 500": 1})
    assert faults_of(OpenLoopResult(100.0, 1.0, failures=failures, unsent=unsent)) == +Counter(
        {NO_ANSWER: lost, "status 500": 1}
    )
