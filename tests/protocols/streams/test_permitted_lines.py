from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any

import pytest

from app.access.access import Access
from app.access.access_file import AccessFile, digest_of
from app.access.rules import Need, Permission, Principal, Rules
from app.core.errors import ServingError, Unauthenticated
from app.protocols.streams.lines import Block
from app.protocols.streams.permitted_lines import permitted_parts
from tests.support.fakes import fake_time, run_in_fake_time

KEY = b"right-key-0123456789"


def access_of(**rules: Any) -> Access:
    principal = Principal("one", Rules(("*",), frozenset(Permission), **rules))
    return Access(AccessFile({digest_of(KEY): principal}), clock=fake_time, wall_clock=fake_time)


def lines_of(access: Access, denied: list[ServingError]) -> Callable[[Block], AsyncGenerator[Block, None]]:
    return partial(permitted_parts, access.permit([(b"x-api-key", KEY)], Need(Permission.INFER, "m")), denied.append)


def block(first: int, count: int) -> Block:
    return Block(first, [b"%d" % number for number in range(first, first + count)])


def test_without_credentials_a_block_passes_as_it_is() -> None:
    async def main() -> None:
        whole = block(1, 3)
        assert [part async for part in permitted_parts(None, [].append, whole)] == [whole]

    run_in_fake_time(main())


def test_lines_come_at_the_rate_of_their_caller_and_none_is_lost() -> None:
    async def main() -> None:
        begun = fake_time()
        came = [
            (round(fake_time() - begun, 6), part)
            async for part in lines_of(access_of(rate=2, burst=3), [])(block(5, 5))
        ]
        assert came == [(0, block(5, 3)), (0.5, block(8, 1)), (1.0, block(9, 1))]

    run_in_fake_time(main())


@pytest.mark.parametrize("waits", [False, True])
def test_a_key_that_is_removed_ends_the_stream_after_the_lines_before(waits: bool) -> None:
    """Also while a line waits for its caller's rate."""

    async def main() -> None:
        access, denied = access_of(rate=1, burst=3), list[ServingError]()
        lines = lines_of(access, denied)
        assert [part async for part in lines(block(1, 2))] == [block(1, 2)]
        parts = lines(block(3, 2))
        if waits:
            assert await anext(parts) == block(3, 1)
            asyncio.get_running_loop().call_later(0.5, access.change, AccessFile())
        else:
            access.change(AccessFile())
        with pytest.raises(Unauthenticated, match="The credential is not valid here"):
            await anext(parts)
        assert [each.denied for each in denied] == ["unknown"]

    run_in_fake_time(main())
