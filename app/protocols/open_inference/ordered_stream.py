"""Answers to a stream of requests: worked on side by side, given in the order in which they were asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

#: Requests of one stream that wait or are worked on; the next is read when the first of them is answered.
WINDOW = 64

_Work = asyncio.Task[Any] | Exception | None


async def answer_in_order(
    requests: AsyncIterator[Any], answer: Callable[[Any], Awaitable[Any]], window: int = WINDOW
) -> AsyncIterator[Any]:
    """`answer` of each request. What is left when the caller goes is cancelled; an error of `requests` ends it."""
    line: asyncio.Queue[_Work] = asyncio.Queue(window)
    tasks: set[asyncio.Task[Any]] = set()
    reading = asyncio.create_task(_read(requests, answer, line, tasks), name="read requests of a stream")
    try:
        while (work := await line.get()) is not None:
            if isinstance(work, Exception):
                raise work
            yield await work
    finally:
        reading.cancel()
        for task in tasks:
            task.cancel()


async def _read(
    requests: AsyncIterator[Any],
    answer: Callable[[Any], Awaitable[Any]],
    line: asyncio.Queue[_Work],
    tasks: set[asyncio.Task[Any]],
) -> None:
    try:
        async for request in requests:
            task = asyncio.ensure_future(answer(request))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            await line.put(task)
    except Exception as error:
        await line.put(error)
    else:
        await line.put(None)
