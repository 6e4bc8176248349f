"""The watch of the models' folders, which are read again and again, whatever happens to their storage.

1. A folder whose storage does not answer is left out, and tried again after a pause that doubles. The others are read.
2. An unreadable folder unloads nothing, as it may come back. Neither does an empty folder of a served model, for
   `empty_grace_s`: a mount that went away leaves one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from app.repository.catalog import Catalog
from app.repository.disk.disk_layout import DiskLayout
from app.repository.disk.retries import Retries
from app.repository.disk.storage import StorageProcesses, StorageSilent
from app.repository.model_config import ModelConfig
from app.repository.model_sources import ModelSource

logger = logging.getLogger(__name__)


class FolderWatch:
    """The silent and the empty folders, and since when. `clock`: monotonic seconds."""

    def __init__(
        self, storage: StorageProcesses, catalog: Catalog, empty_grace_s: float, clock: Callable[[], float]
    ) -> None:
        self._storage = storage
        self._catalog = catalog
        self._empty_grace_s = empty_grace_s
        self._clock = clock
        self._silent: dict[Path, StorageSilent] = {}
        self._retries = Retries(clock)
        self._empty_since_s: dict[str, float] = {}

    async def scan(self, source: ModelSource) -> DiskLayout:
        """The layout of the disk. Raises OSError: no folder can be read; StorageSilent: the storage does not answer."""
        whole = Path(str(source))
        while True:
            silent = frozenset(path for path in self._silent if not self._retries.due(path))
            if whole in silent:
                raise self._silent[whole]
            try:
                layout = await self._storage.call(source.scan, silent)
            except StorageSilent as error:
                folder = Path(error.where)
                self._silent[folder] = error
                pause_s = self._retries.failed(folder)
                logger.warning("%s; next try after %g s", error, pause_s)
                if folder == whole or folder in silent:
                    raise
            else:
                for path in self._silent.keys() - silent:
                    del self._silent[path]
                    self._retries.forget(path)
                return layout

    def keep_emptied(
        self, layout: DiskLayout, before: Mapping[str, ModelConfig], unloaded: Collection[str]
    ) -> DiskLayout:
        """The layout, in which served models whose folders became empty a short time ago count as unreadable.

        Args:
            before: the models of the last poll.
            unloaded: the models that were taken out of service on purpose.
        """
        # 1. Served models without versions on disk, and since when.
        served = {name for name in before if self._catalog.available(name)}.difference(unloaded)
        empty = served if layout.found_none else served & layout.empty
        now_s = self._clock()
        self._empty_since_s = {name: self._empty_since_s.get(name, now_s) for name in empty}

        # 2. Within the grace they are kept.
        kept = {name for name, since_s in self._empty_since_s.items() if now_s - since_s < self._empty_grace_s}
        for name in sorted(kept):
            if self._empty_since_s[name] == now_s:
                logger.warning(
                    "%s is empty: its storage may have gone away. Model %s is unloaded if it stays so for %g s",
                    before[name].base_path, name, self._empty_grace_s,
                )  # fmt: skip
        configs = {**layout.configs, **{name: before[name] for name in kept}}
        return replace(layout, configs=configs, unreadable=layout.unreadable | kept)

    def __repr__(self) -> str:
        return f"<FolderWatch, silent: {sorted(map(str, self._silent))}, empty: {sorted(self._empty_since_s)}>"
