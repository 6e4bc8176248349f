"""The tasks that bring models up to date, one for each model: a further change is done by the same task."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Set
from typing import TypeAlias

logger = logging.getLogger(__name__)

#: Tasks by model.
Tasks: TypeAlias = Mapping[str, asyncio.Task[None]]


class ModelTasks:
    """The tasks that load and unload. A finished task is forgotten.

    Args:
        reconcile: brings one model up to date. Its errors are logged: the next poll asks again.
    """

    def __init__(self, reconcile: Callable[[str], Awaitable[None]]) -> None:
        self._reconcile = reconcile
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()  # the models whose layout may have changed meanwhile
        self._following: set[str] = set()  # the pipelines whose models have come

    @property
    def under_way(self) -> Set[str]:
        """The models that are being brought up to date."""
        return self._under_way.keys()

    def begin(self, name: str) -> asyncio.Task[None]:
        """The task that brings one model up to date; if one is under way, it begins again when it has ended."""
        task = self._under_way.get(name)
        if task is not None and not task.done():
            self._again.add(name)
            return task
        task = self._under_way[name] = asyncio.create_task(self._run(name), name=f"reconcile {name}")
        return task

    def begin_following(self, name: str) -> None:
        """Begin the task of a held model that may be loaded now; `finished` without a name waits for it, too."""
        self._following.add(name)
        self.begin(name)

    async def finished(self, tasks: Tasks, name: str | None = None) -> None:
        """Wait until these tasks are done, or, with a name, the task of one model.

        Without a name it also waits for pipelines whose models have come.
        """
        wanted = [task for model, task in tasks.items() if name in {None, model}]
        if wanted:
            await asyncio.wait(wanted)
        while name is None and (following := [self._under_way[each] for each in self._following]):
            await asyncio.wait(following)

    async def all_finished(self) -> None:
        if self._under_way:
            await asyncio.wait(self._under_way.values())

    async def _run(self, name: str) -> None:
        self._again.add(name)
        while name in self._again:
            self._again.discard(name)
            try:
                await self._reconcile(name)
            except Exception as failure:
                logger.exception(
                    "Loading or unloading a model failed by an unexpected error: %r; the next poll tries again", failure
                )
        del self._under_way[name]
        self._following.discard(name)
