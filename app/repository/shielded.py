"""Coroutines that finish although their caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

#: The event loop keeps only weak references to tasks.
_running: set[asyncio.Task[Any]] = set()


def shielded(
    method: Callable[Parameters, Coroutine[Any, Any, Result]],
) -> Callable[Parameters, Coroutine[Any, Any, Result]]:
    """A decorator of coroutine functions, which run to their end although their caller is cancelled."""

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
        task.exception()  # marks it as retrieved: otherwise asyncio reports an error whose caller was cancelled
