"""Changes that go on when whoever asked for them goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

#: The event loop itself keeps but weak references.
_running: set[asyncio.Task[Any]] = set()


def shielded(
    method: Callable[Parameters, Coroutine[Any, Any, Result]],
) -> Callable[Parameters, Coroutine[Any, Any, Result]]:
    """The caller of the coroutine function may be cancelled, as calls over a network are; what it began is finished."""

    @wraps(method)
    async def shielded(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        task = asyncio.create_task(method(*args, **kwargs))
        _running.add(task)
        task.add_done_callback(_ended)
        return await asyncio.shield(task)

    return shielded


def _ended(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled():
        task.exception()  # seen: asyncio must not report an error that nobody was left to hear
