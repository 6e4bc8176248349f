from __future__ import annotations

import asyncio

from app.protocols.streams.lines import Block
from app.protocols.streams.window import Window
from tests.support.fakes import run_in_fake_time


def block(lines: int, size: int = 1) -> Block:
    return Block(1, [b"1" * size] * lines)


async def waits(window: Window, entering: Block) -> asyncio.Task[None]:
    task = asyncio.create_task(window.enter(entering))
    await asyncio.sleep(1)
    assert not task.done()
    return task


def test_a_full_window_waits_until_enough_have_left() -> None:
    async def main() -> None:
        window = Window(4, 100)
        for _ in range(2):
            await window.enter(block(2))
        entering = await waits(window, block(3))
        window.leave(block(2))
        await asyncio.sleep(1)
        assert not entering.done()
        window.leave(block(2))
        await entering

    run_in_fake_time(main())


def test_bytes_count_too() -> None:
    async def main() -> None:
        window = Window(100, 10)
        await window.enter(block(1, 6))
        entering = await waits(window, block(1, 5))
        window.leave(block(1, 6))
        await entering

    run_in_fake_time(main())


def test_an_empty_window_takes_any_block() -> None:
    async def main() -> None:
        window = Window(4, 10)
        await window.enter(block(9, 9))
        await waits(window, block(1))

    run_in_fake_time(main())
