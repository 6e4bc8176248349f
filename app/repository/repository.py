"""Keeps the models in memory in step with the models folder."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from app.errors import InvalidRequest, ModelNotReady
from app.events import Listener, ignore
from app.repository.catalog import Catalog
from app.repository.layout import Ignored, Layout, fingerprint, scan
from app.repository.policy import VersionPolicy, latest
from app.repository.servable import Servable
from app.repository.versions import VersionState, VersionStatus

if TYPE_CHECKING:
    from app.model import Model

log = logging.getLogger(__name__)

#: Name, version, folder -> the model, loaded and warmed up. Blocking; called on the loader thread.
LoadModel = Callable[[str, int, Path], "Model"]

_ENDED_KEPT = 8


class ModelRepository:
    """The models of `folder`, each served at the versions its policy wants.

    A new version is loaded and warmed up beside the old one on one loader thread, then takes over, then the
    old one answers what it accepted and is unloaded. A version that fails to load leaves what is served as it
    is and is tried again when its files change or come back. A version in memory is not loaded again when its
    files change: new content takes a new number, as in TensorFlow Serving. When every version folder of a
    model is deleted, the model is unloaded; a deleted version whose replacement cannot be loaded stays.
    """

    def __init__(
        self,
        folder: Path,
        load: LoadModel,
        listener: Listener = ignore,
        poll_interval_s: float = 1.0,
        default_model: str = "",
        *,
        policy: VersionPolicy = latest,
    ) -> None:
        self._folder = folder
        self._load_model = load
        self._listener = listener
        self._poll_interval_s = poll_interval_s
        self._default_model = default_model
        self._policy = policy
        self._catalog = Catalog()
        self._layout = Layout()
        self._awaited: frozenset[str] | None = None
        self._first_round = asyncio.Event()
        self._stopping = asyncio.Event()
        self._one_round = asyncio.Lock()
        self._one_load = asyncio.Lock()
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="loader")
        self._polling: asyncio.Task[None] | None = None
        self._unloading: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Returns when every model was loaded or failed to; the folder is watched from then on."""
        self._polling = asyncio.create_task(self._poll(), name="watch models")
        await self._first_round.wait()
        if self._default_model not in {"", *self.names()}:
            log.warning("default_model is %s, but the models are: %s", self._default_model, ", ".join(self.names()))

    async def close(self) -> None:
        """Stops watching, waits for the load under way and for the requests that the models accepted."""
        self._stopping.set()
        if self._polling is not None:
            await asyncio.wait({self._polling})
        async with self._one_round:
            for servable in self._catalog.servables():
                self._unload(servable)
        await asyncio.gather(*self._unloading)
        self._loader.shutdown()

    async def poll_once(self) -> None:
        """Looks at the folder once and does what it takes to serve it. Never raises for what it finds there."""
        async with self._one_round:
            try:
                self._look(await asyncio.to_thread(scan, self._folder))
            except OSError as error:
                self._report(frozenset({Ignored(self._folder, f"the models folder cannot be read: {error.strerror}")}))
            else:
                await self._reconcile_all()
            finally:
                self._first_round.set()

    def alive(self) -> bool:
        """False when the folder is no longer watched though it should be."""
        return self._polling is None or self._stopping.is_set() or not self._polling.done()

    def resolve(self, name: str, version: int | None = None, label: str | None = None) -> Model:
        """See Catalog. Call it when nothing awaits before the model is called: versions may be swapped in between."""
        return self._catalog.resolve(name, version, label)

    def names(self) -> list[str]:
        """See Catalog."""
        return self._catalog.names()

    def statuses(self, name: str, version: int | None = None) -> Sequence[VersionStatus]:
        """See Catalog."""
        return self._catalog.statuses(name, version)

    def default_name(self) -> str:
        """The model behind the short routes.

        Raises:
            InvalidRequest: there are several and none is set.
            ModelNotReady: there is none yet.
        """
        if self._default_model:
            return self._default_model
        names = self.names()
        if not names:
            raise ModelNotReady("No model is loaded yet")
        if len(names) > 1:
            raise InvalidRequest(f"Several models are served: {', '.join(names)}. Name one, or set default_model")
        return names[0]

    def ready(self) -> bool:
        """True while something is served and nothing that was there at the start is missing.

        A model that arrives later does not take a serving server out of rotation while it loads or if it fails.
        """
        return not self.unready_reasons()

    def unready_reasons(self) -> list[str]:
        """What `ready` waits for, a line for each model."""
        awaited = sorted(self._awaited or ())
        if reasons := [reason for name in awaited if (reason := self._catalog.why_unavailable(name))]:
            return reasons
        if any(servable.model for servable in self._catalog.servables()):
            return []
        return [f"No model is served from {self._folder}" if self._first_round.is_set() else "Models are still loading"]

    async def _poll(self) -> None:
        while not self._stopping.is_set():
            try:
                await self.poll_once()
            except Exception:  # the watch must outlive any bug in a round
                log.exception("Looking at the models folder failed; trying again in %s s", self._poll_interval_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_interval_s):
                    await self._stopping.wait()

    def _look(self, layout: Layout) -> None:
        self._report(layout.ignored)
        self._layout = layout
        if self._awaited is not None:
            self._awaited &= layout.models.keys()
        elif layout.models:
            self._awaited = frozenset(layout.models)

    def _report(self, ignored: frozenset[Ignored]) -> None:
        """Says what is ignored when it is new, not at every look."""
        for each in sorted(ignored - self._layout.ignored, key=str):
            log.warning("%s is ignored: %s", each.path, each.reason)
        self._layout = Layout(self._layout.models, ignored, self._layout.unreadable)

    async def _reconcile_all(self) -> None:
        names = sorted((self._layout.models.keys() | self._catalog.models.keys()) - self._layout.unreadable)
        rounds = [self._reconcile(name) for name in names]
        for failure in await asyncio.gather(*rounds, return_exceptions=True):
            if failure:
                log.error("Bringing a model up to date failed: %r", failure, exc_info=failure)

    async def _reconcile(self, name: str) -> None:
        """Loads what the policy wants of one model, then unloads the rest.

        While a wanted version is not available the others stay: a model never drops to nothing in between.
        """
        servables = self._catalog.models.setdefault(name, {})
        folders = self._layout.models.get(name, {})
        await _forgive_changed(servables, folders)
        while (missing := self._wanted(servables, folders) - _available(servables)) and not self._stopping.is_set():
            await self._load(name, max(missing), folders[max(missing)])
        wanted, available = self._wanted(servables, folders), _available(servables)
        gone = name not in self._layout.models
        if gone or (wanted and wanted <= available):
            for version in available - wanted:
                self._unload(servables[version])
        _drop_old_endings(servables)

    def _wanted(self, servables: Mapping[int, Servable], folders: Mapping[int, Path]) -> set[int]:
        """A version that failed is no candidate, nor is one whose earlier life has not ended yet."""
        passed_over = {
            number
            for number, servable in servables.items()
            if servable.failed_on is not None or servable.state is VersionState.UNLOADING
        }
        return self._policy(folders.keys() - passed_over)

    async def _load(self, name: str, version: int, folder: Path) -> None:
        servable = self._catalog.models[name][version] = Servable(name, version, self._listener)
        async with self._one_load:
            if self._stopping.is_set():
                return
            files = await asyncio.to_thread(fingerprint, folder)
            loop = asyncio.get_running_loop()
            await servable.load(loop.run_in_executor(self._loader, self._load_model, name, version, folder), files)

    def _unload(self, servable: Servable) -> None:
        """In a task of its own: slow answers of an old version must not hold up the watch."""
        task = asyncio.create_task(servable.unload())
        self._unloading.add(task)
        task.add_done_callback(self._unloading.discard)


async def _forgive_changed(servables: Mapping[int, Servable], folders: Mapping[int, Path]) -> None:
    """Lets a failed version be tried again when its files changed or went away."""
    for version, servable in servables.items():
        if servable.failed_on is None:
            continue
        folder = folders.get(version)
        if folder is None or await asyncio.to_thread(fingerprint, folder) != servable.failed_on:
            servable.failed_on = None


def _available(servables: Mapping[int, Servable]) -> set[int]:
    return {version for version, servable in servables.items() if servable.model}


def _drop_old_endings(servables: dict[int, Servable]) -> None:
    """Statuses of ended versions are for people to read: the newest few do."""
    ended = sorted(version for version, servable in servables.items() if servable.ended)
    for version in ended[:-_ENDED_KEPT]:
        del servables[version]
