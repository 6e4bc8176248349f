"""Answers to a stream of requests: computed concurrently, delivered in the order of the requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

#: The most requests of one stream that are not answered yet; the next is read when the first one is answered. Chosen.
WINDOW = 64

_Work = asyncio.Task[Any] | Exception | None


async def answer_in_order(
    requests: AsyncIterator[Any], answer: Callable[[Any], Awaitable[Any]], window: int = WINDOW
) -> AsyncGenerator[Any, None]:
    """The answers to requests, in order, as an asynchronous generator.

    When it is closed, the remaining work is cancelled, and `requests` are not read any more. An error of `requests`
    ends it.
    """
    queue: asyncio.Queue[_Work] = asyncio.Queue(window)
    tasks: set[asyncio.Task[Any]] = set()
    reading = asyncio.create_task(_read(requests, answer, queue, tasks), name="read requests of a stream")
    work: _Work = None
    try:
        while (work := await queue.get()) is not None:
            if isinstance(work, Exception):
                raise work
            yield await work
    finally:
        del work  # an error holds this frame
        reading.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.wait([reading])


async def _read(
    requests: AsyncIterator[Any],
    answer: Callable[[Any], Awaitable[Any]],
    queue: asyncio.Queue[_Work],
    tasks: set[asyncio.Task[Any]],
) -> None:
    try:
        async for request in requests:
            task = asyncio.ensure_future(answer(request))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            await queue.put(task)
    except Exception as error:
        await queue.put(error)
    else:
        await queue.put(None)
