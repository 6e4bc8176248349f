"""Loads and unloads versions until the servables of a model match the versions on disk."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.core.events import Listener
from app.core.machine_memory import available_bytes
from app.core.versions import VersionState
from app.repository.catalog import Catalog
from app.repository.disk_layout import DiskLayout, fingerprint
from app.repository.load_slots import LoadSlots
from app.repository.retries import Retries
from app.repository.servable import Servable
from app.repository.version_policy import VersionPolicy

if TYPE_CHECKING:
    from app.model import Model

logger = logging.getLogger(__name__)

#: From name, version and folder to the model, loaded and warmed up. Blocking; called on a loader thread.
LoadModel = Callable[[str, int, Path], "Model"]

#: Loads that run side by side. Chosen: TensorFlow reads a graph on one core.
_MOST_LOADS = min(4, os.cpu_count() or 1)

#: Statuses of ended versions that are kept for each model. Chosen.
_ENDED_KEPT = 8


class Reconciler:
    """Loads one version of each model at a time, and unloads.

    Its caller makes no two calls for one model at the same time.
    """

    def __init__(
        self,
        catalog: Catalog,
        load: LoadModel,
        listener: Listener,
        mirrored: Callable[[], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        self._catalog = catalog
        self._load_model = load
        self._listener = listener
        self._mirrored = mirrored
        self._retries = Retries(clock)
        self._slots = LoadSlots(_MOST_LOADS, available_bytes)
        self._loader = ThreadPoolExecutor(_MOST_LOADS, thread_name_prefix="loader")
        self._unloading: dict[asyncio.Task[None], str] = {}
        self._stopping = False

    async def reconcile(self, name: str, layout: DiskLayout) -> None:
        """Loads the versions that the policy wants of one model, then unloads the others.

        The others stay until all wanted versions are available, so that the model is served at any time.
        """
        servables = self._catalog.models.setdefault(name, {})
        folders = layout.models.get(name)
        if folders is None:
            self._unload_all(servables.values())
        else:
            await self._update(name, servables, folders, layout.configs[name].policy)
        _drop_old_endings(servables)

    async def _update(
        self, name: str, servables: dict[int, Servable], folders: Mapping[int, Path], policy: VersionPolicy
    ) -> None:
        await self._reset_failed(servables, folders)
        while (missing := _wanted(policy, servables, folders) - self._catalog.available(name)) and not self._stopping:
            await self._load(name, max(missing), folders[max(missing)])
        wanted, available = _wanted(policy, servables, folders), self._catalog.available(name)
        if wanted and wanted <= available:
            for version in available - wanted:
                self._unload(servables[version])

    async def unloaded(self, name: str) -> bool:
        """Waits for the versions of a model that are being unloaded; False if there were none."""
        unloading = [task for task, model in self._unloading.items() if model == name]
        if unloading:
            await asyncio.wait(unloading)
        return bool(unloading)

    def stop(self) -> None:
        """From now on no load begins."""
        self._stopping = True

    async def close(self) -> None:
        """Waits for the requests that the models accepted, then unloads all models."""
        self._unload_all(self._catalog.servables())
        await asyncio.gather(*self._unloading)
        self._loader.shutdown()

    async def _load(self, name: str, version: int, folder: Path) -> None:
        servable = self._catalog.models[name][version] = Servable(name, version, self._listener)
        async with self._slots.take(partial(asyncio.to_thread, _file_bytes, folder)):
            if self._stopping:
                return
            files = await asyncio.to_thread(fingerprint, folder)
            loop = asyncio.get_running_loop()
            await servable.load(loop.run_in_executor(self._loader, self._load_model, name, version, folder), files)
        if servable.may_pass:
            pause_s = self._retries.failed((name, version))
            logger.warning("%s is loaded again in %g s: its files could not be read", servable, pause_s)
        else:
            self._retries.forget((name, version))

    async def _reset_failed(self, servables: Mapping[int, Servable], folders: Mapping[int, Path]) -> None:
        """Lets a failed version be tried again: its files changed or were deleted, or the failure may have passed."""
        for version, servable in servables.items():
            if servable.failed_on is None:
                continue
            folder = folders.get(version)
            if folder is None or await asyncio.to_thread(fingerprint, folder) != servable.failed_on:
                self._retries.forget((servable.name, version))
                servable.failed_on = None
            elif self._retries.due((servable.name, version)):
                servable.failed_on = None

    def _unload_all(self, servables: Iterable[Servable]) -> None:
        for servable in servables:
            servable.failed_on = None
            if servable.model:
                self._unload(servable)

    def _unload(self, servable: Servable) -> None:
        """In its own task, so that slow answers of an old version do not delay other changes."""
        task = asyncio.create_task(servable.unload(self._mirrored))
        self._unloading[task] = servable.name
        task.add_done_callback(self._unloading.pop)


def _file_bytes(folder: Path) -> int:
    return sum(size for _, size, _ in fingerprint(folder))


def _wanted(policy: VersionPolicy, servables: Mapping[int, Servable], folders: Mapping[int, Path]) -> set[int]:
    """The versions that the policy wants, without those that failed or are still being unloaded."""
    excluded = {
        number
        for number, servable in servables.items()
        if servable.failed_on is not None or servable.state is VersionState.UNLOADING
    }
    return policy(folders.keys() - excluded)


def _drop_old_endings(servables: dict[int, Servable]) -> None:
    """Keeps the statuses of the newest few ended versions, for people to read."""
    ended = sorted(version for version, servable in servables.items() if servable.ended)
    for version in ended[:-_ENDED_KEPT]:
        del servables[version]
