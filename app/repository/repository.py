"""The repository: the models in memory, kept up to date with a list of models and their versions on disk."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from weakref import WeakValueDictionary

from app.core.errors import FilesUnreadable, InvalidRequest, ModelNotFound, ModelNotReady
from app.core.events import Event, LabelsChanged, Listener, ModelStateChanged, ignore
from app.core.interfaces import NO_OVERRIDES, LoadOverrides
from app.core.versions import ProblemKind, VersionState, printable
from app.repository.catalog import Catalog
from app.repository.disk.disk_layout import DiskLayout, IgnoredFolder
from app.repository.disk.examination import MissingPart, nothing_missing
from app.repository.disk.intake import Intake
from app.repository.disk.local_copies import LocalCopies
from app.repository.disk.storage import StorageProcesses
from app.repository.folder_watch import FolderWatch
from app.repository.memory.load_markers import LoadMarkers
from app.repository.memory.load_room import LoadRoom
from app.repository.model_config import ModelConfig
from app.repository.model_list_checks import check_labels, check_names_and_paths, check_platforms
from app.repository.model_sources import ModelList, ModelSource
from app.repository.model_tasks import ModelTasks, Tasks
from app.repository.readiness import Readiness, why_no_version
from app.repository.reconciler import LoadModel, Reconciler, WhyWaiting
from app.repository.shielded import shielded

logger = logging.getLogger(__name__)


def _never(text: bytes) -> str:  # noqa: ARG001 - a WhyWaiting
    return ""


class ModelRepository:
    """The models of `source`, each served at the versions its policy wants.

    - A new version is loaded and warmed up beside the old one on a loader thread, and takes over. Then the old one
      answers its accepted requests and is unloaded.
    - A version that fails to load changes nothing, and is tried again when its files change or come back; if they could
      not be read, after a pause that doubles.
    - New content under the same number is loaded beside the old one, too, and replaces it.
    - When all version folders of a model are deleted, the model is unloaded. A deleted version stays if its replacement
      cannot be loaded.

    Args:
        poll_interval_s: seconds between two polls of the disk; 0 polls once.
        labels_anywhere: whether new labels may name versions that are not available (yet).
        strict_readiness: see Readiness.
        storage: reads the disk.
        copies: local copies of versions whose storage stays slow; by default in the temporary folder.
        missing_part, settle_s: see Intake.
        room, markers: keep loads that are too large from ending the server; by default no mark is kept.
        empty_grace_s: seconds for which an empty folder, maybe of a mount that went away, unloads nothing.
    """

    def __init__(
        self,
        source: ModelSource,
        load: LoadModel,
        listener: Listener = ignore,
        poll_interval_s: float = 1.0,
        default_model: str = "",
        *,
        storage: StorageProcesses,
        labels_anywhere: bool = False,
        strict_readiness: bool = False,
        copies: LocalCopies | None = None,
        missing_part: MissingPart = nothing_missing,
        settle_s: float = 0.0,
        empty_grace_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        why_waiting: WhyWaiting = _never,
        room: LoadRoom | None = None,
        markers: LoadMarkers | None = None,
    ) -> None:
        self._source = source
        self._poll_interval_s = poll_interval_s
        self._labels_anywhere = labels_anywhere
        self._listener = listener
        self.catalog = catalog = Catalog(default_model)
        #: The catalog's methods, as this class's.
        self.resolve, self.names = catalog.resolve, catalog.names
        self.statuses, self.default_name = catalog.statuses, catalog.default_name
        #: Returns when all copies of the catalog, which frontends hold, are up to date.
        self.mirrored: Callable[[], Awaitable[None]] = _no_mirror
        mirrored = lambda: self.mirrored()  # noqa: E731, PLW0108 - it is set later
        self._storage = storage
        self._settle_s = settle_s
        self._copies = copies = copies or LocalCopies(self._storage)
        self._intake = intake = Intake(self._storage, missing_part, settle_s, clock, copies=copies)
        self._reconciler = Reconciler(
            self.catalog,
            load,
            self._heard(listener),
            mirrored,
            storage=self._storage,
            intake=intake,
            copies=copies,
            clock=clock,
            why_waiting=why_waiting,
            room=room,
            markers=markers,
        )
        self._watch = FolderWatch(self._storage, catalog, empty_grace_s, clock)
        self._layout = DiskLayout()
        self._unloaded: set[str] = set()
        #: By model, the overrides of the last load by name.
        self.overrides: dict[str, LoadOverrides] = {}
        self._readiness = Readiness(catalog, str(source), strict=strict_readiness)
        self.problems, self.unready_reasons = self._readiness.problems, self._readiness.unready_reasons
        self._scanned = False
        self._polled = asyncio.Event()
        self._stopping = asyncio.Event()
        self._poll_lock = asyncio.Condition()
        self._tasks = ModelTasks(self._reconcile)
        self._polling: asyncio.Task[None] | None = None
        #: By model, while a load by name is under way.
        self._loads: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # --- life ---

    async def look(self) -> None:
        """Note the files on disk before `start`, while a runtime starts: they need no more time to rest."""
        with suppress(OSError):  # the first poll reports it
            for folder, files in (await self._watch.scan(self._source)).files.items():
                self._intake.notice(folder, files)

    async def start(self) -> None:
        """Load all models, and watch the disk from then on. Returns when every model was loaded or has failed.

        Raises InvalidRequest: the source is a list of models, and wrong.
        """
        if isinstance(self._source, ModelList):
            await self._check(self._source)
        await self._copies.delete_leftovers()
        self._polling = asyncio.create_task(self._keep_polling(), name="watch models")
        self._polling.add_done_callback(lambda _: self.leave_storage())
        await self._polled.wait()
        default_model, names = self.catalog.default_model, self.names()
        if default_model not in {"", *names}:
            logger.warning(
                "default_model is %s, but no model has this name, so the short routes find none; models: %s",
                default_model,
                ", ".join(names),
            )

    async def wait_until_available(self) -> None:
        """Wait until every model of the first poll that found any can be called, but for models that lack memory.

        Raises ModelNotReady: one of them failed to load.
        """
        async with self._poll_lock:
            while missing := self._readiness.missing():
                if all(self.catalog.lacks_memory(name) for name in missing):
                    return
                for name in missing:
                    if name not in self._tasks.under_way and (reason := self.catalog.why_failed(name)):
                        raise ModelNotReady(reason)
                await self._poll_lock.wait()

    async def close(self) -> None:
        """Stop watching, and wait for loads under way and for accepted requests."""
        self._stopping.set()
        self._reconciler.stop()
        self.leave_storage()
        if self._polling is not None:
            await asyncio.wait({self._polling})
        async with self._poll_lock:
            await self._tasks.all_finished()
            await self._reconciler.close()
            await self._copies.close()

    def leave_storage(self) -> None:
        """Give up reads of the storage under way, as `close` does."""
        self._storage.close()

    async def poll_once(self, *, waits: bool = True) -> None:
        """Reads the disk once, then loads and unloads accordingly. Does not raise for models that fail.

        Args:
            waits: whether to wait for the loads of this poll. The loads of the first poll are always waited for.
        """
        async with self._poll_lock:
            tasks = await self._poll()
        if waits or not self._polled.is_set():
            await self._tasks.finished(tasks)
        if not self._polled.is_set():
            await self._finish_changes()
        await self._note_polled()

    def alive(self) -> bool:
        """Whether the watch of the disk is as it should be; False if it ended by itself."""
        return self._polling is None or self._stopping.is_set() or not self._polling.done()

    # --- changes at run time ---

    @shielded
    async def reload(self, configs: Sequence[ModelConfig]) -> None:
        """Serve exactly these models from now on. Returns when the new ones are available.

        Raises:
            InvalidRequest: the list is wrong, and nothing changed.
            FilesUnreadable: the disk could not be looked at, and nothing changed.
            ModelNotFound: a new model has no version that can be served. It is served as soon as it has one.
            ModelNotReady: a new model failed to load. The others are served.
        """
        source = ModelList(tuple(configs))
        async with self._poll_lock:
            try:
                layout = await self._check(source)
            except OSError as error:
                raise FilesUnreadable(
                    f"The list of models stays as it is, because the disk cannot be read: {error}"
                ) from None
            old = self._layout.configs
            self._source = source
            self._unloaded.clear()
            tasks = await self._follow(layout)
        await self._tasks.finished(tasks)
        await self._finish_changes()
        new = [config.name for config in configs if config.name not in old]
        await self._finish_loads(new)
        for name in new:
            self._check_available(name)

    @shielded
    async def load(self, name: str, overrides: LoadOverrides = NO_OVERRIDES) -> None:
        """Serve a model that was unloaded or that failed to load. Returns when it is available.

        A model that is served with other overrides is loaded anew beside the old one, and replaces it. Loads of one
        model run one after another: a load knows the overrides of the one before.

        Raises:
            ModelNotFound: there is no such model, or no version of it that can be served.
            ModelNotReady: it failed to load, or the disk could not be read; an earlier version serves on.
            InvalidRequest: it cannot have these overrides; an earlier version serves on.
        """
        lock = self._loads.setdefault(name, asyncio.Lock())
        async with lock:
            await self._load(name, overrides)

    async def _load(self, name: str, overrides: LoadOverrides) -> None:
        # 1. Versions that failed are tried again; served ones are loaded anew if overrides change.
        before = self.overrides.get(name, NO_OVERRIDES)
        async with self._poll_lock:
            self._unloaded.discard(name)
            self._reconciler.retry_left_out(name)
            self._override(name, overrides)
            for servable in self.catalog.models.get(name, {}).values():
                servable.failed_on = None
                if overrides != before:
                    servable.outdate()
            tasks = await self._poll()

        # 2. The load, or why the model is not available.
        await self._tasks.finished(tasks, name)
        await self._finish_changes(name)
        await self._finish_loads([name])
        self._check_available(name)

        # 3. A version that was not loaded anew serves on, with its earlier overrides.
        for servable in self.catalog.models[name].values():
            if servable.outdated and servable.model is not None:
                reason = servable.refused[1] if servable.refused else self._why_not_tried(name, servable.version)
                kind = InvalidRequest if servable.refused and servable.rejected else ModelNotReady
                self._override(name, before)
                servable.outdate(False)
                raise kind(f"Model {name} serves on as it was: {reason}")

    def _why_not_tried(self, name: str, version: int) -> str:
        """The reason why a served version was not loaded anew."""
        if held := self.catalog.held.get(name, {}).get(version):
            return held.text
        if name in self._layout.unreadable:
            return self._layout.why_unreadable(name)
        return self._readiness.source_error or "the server stops"

    def _override(self, name: str, overrides: LoadOverrides) -> None:
        if overrides == NO_OVERRIDES:
            self.overrides.pop(name, None)
        else:
            self.overrides[name] = overrides

    @shielded
    async def unload(self, name: str) -> None:
        """Stop serving a model until `load`. Requests that it accepted are still answered.

        The disk is not read, and no poll is waited for: a model can be unloaded while its storage hangs.

        Raises:
            ModelNotFound: there is no such model.
            ModelNotReady: the models have not been found yet.
        """
        returns = name in self._loads and name in self.catalog.models
        if name not in self._layout.configs and name not in self._unloaded and not returns:
            self._check_readable()
            raise ModelNotFound(f"Model {name} is not in the repository")
        self._unloaded.add(name)
        self._layout = self._layout.without({name})
        self._readiness.layout_changed(self._layout)
        await asyncio.wait({self._tasks.begin(name)})
        await self.mirrored()

    # --- models ---

    def known_names(self) -> list[str]:
        """The names of all models, including unloaded models and models that have no version yet."""
        return sorted({*self.names(), *self._layout.configs, *self._unloaded})

    async def _check(self, source: ModelList) -> DiskLayout:
        """The layout for a list. Raises InvalidRequest if the list may not replace the served models; OSError."""
        check_names_and_paths(source.configs)
        check_platforms(self._layout.configs, source.configs)
        layout = await self._watch.scan(source)
        check_labels(self._layout.configs, layout, self.catalog, self._labels_anywhere)
        return layout

    async def _finish_loads(self, names: Iterable[str]) -> None:
        """Wait until models that can be served are available, and all copies of the catalog are up to date.

        The poll before left out versions that were still being unloaded: they are waited for, and polled again.
        """
        for name in names:
            while not self.catalog.available(name) and await self._reconciler.unloaded(name):
                async with self._poll_lock:
                    tasks = await self._poll()
                await self._tasks.finished(tasks, name)
        await self.mirrored()

    def _check_available(self, name: str) -> None:
        """Check that a model can be called. Raises as `load`."""
        if self.catalog.available(name):
            return
        if reason := self.catalog.why_unavailable(name):
            raise ModelNotReady(reason)
        if name in self._unloaded:
            raise ModelNotReady(f"Model {name} was unloaded meanwhile")
        self._check_readable()
        if name in self._layout.configs:
            why = f": {self._layout.why_unreadable(name)}" if name in self._layout.unreadable else ""
            raise ModelNotFound(why_no_version(name, self._layout) + why)
        raise ModelNotFound(f"Model {name} is not in the repository")

    def _check_readable(self) -> None:
        """Raises ModelNotReady if it is not known which models are on disk."""
        if self._readiness.source_error:
            raise ModelNotReady(self._readiness.source_error)
        if not self._scanned:
            raise ModelNotReady("Models are still loading")

    # --- polls ---

    async def _keep_polling(self) -> None:
        """Poll until the server stops. An error is logged once, until a poll succeeds or has another error."""
        logged = ""
        while not self._stopping.is_set():
            try:
                await self.poll_once(waits=False)
                logged = ""
            except Exception as error:  # a bug in one poll must not end the watch
                before, logged = logged, f"{type(error).__name__}: {error}"
                if logged != before:
                    logger.exception("Looking for changes of models failed; what is served stays; it is tried again")
                await self._note_polled()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_interval_s or None):
                    await self._stopping.wait()

    async def _poll(self) -> Tasks:
        """Read the disk, and begin the tasks that load and unload, by model. The caller holds _poll_lock."""
        try:
            layout = await self._watch.scan(self._source)
        except OSError as error:
            self._source_failed(error)
            return {}
        return await self._follow(layout)

    async def _follow(self, layout: DiskLayout) -> Tasks:
        """Begin the tasks that load and unload by a layout, by model. The caller holds _poll_lock."""
        self._readiness.source_error = ""
        await self._update_layout(self._watch.keep_emptied(layout, self._layout.configs, self._unloaded))
        self._scanned = True
        names = sorted((self._layout.configs.keys() | set(self.catalog.names())) - self._layout.unreadable)
        return {name: self._tasks.begin(name) for name in names}

    def _heard(self, listener: Listener) -> Listener:
        """The listener, which also begins held versions again: pipelines that wait for models, loads for memory."""
        waited_for: dict[str, ProblemKind] = {
            VersionState.AVAILABLE: ProblemKind.WAITING,
            VersionState.END: ProblemKind.NO_MEMORY,
        }

        def hear(event: Event) -> None:
            listener(event)
            if isinstance(event, ModelStateChanged) and event.state in waited_for and not self._stopping.is_set():
                kind = waited_for[event.state]
                readable = self._layout.configs.keys() - self._layout.unreadable
                for name, problems in self.catalog.held.items():
                    if name in readable and any(each.kind is kind for each in problems.values()):
                        self._tasks.begin_following(name)

        return hear

    async def _finish_changes(self, name: str | None = None) -> None:
        """Wait once for files that were too young to be loaded, of one model or of all, and poll again."""
        if not self._some_change(name):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settle_s):
                await self._stopping.wait()
        async with self._poll_lock:
            tasks = await self._poll()
        await self._tasks.finished(tasks, name)

    async def _note_polled(self) -> None:
        """Note the end of a poll; the first one ends with all its loads."""
        self.catalog.complete = self.catalog.complete or self._scanned
        self._readiness.polled()
        self._polled.set()
        async with self._poll_lock:
            self._poll_lock.notify_all()

    def _some_change(self, name: str | None) -> bool:
        held = self.catalog.held
        problems = held.values() if name is None else [held.get(name, {})]
        return any(each.kind is ProblemKind.CHANGING for found in problems for each in found.values())

    def _source_failed(self, error: OSError) -> None:
        if self._stopping.is_set():
            return
        reason = f"the models folder cannot be read: {error.strerror or error}"
        folder = Path(error.filename or str(self._source))
        self._readiness.source_error = printable(f"Changes of models are not seen: {folder}: {reason}")
        self._report(frozenset({IgnoredFolder(folder, f"{reason}; it is tried again, and what is served stays")}))

    async def _update_layout(self, layout: DiskLayout) -> None:
        self._report(layout.ignored)
        self._layout = layout.without(self._unloaded)
        self._set_labels({name: config.labels for name, config in layout.configs.items() if config.labels})
        self._readiness.layout_changed(self._layout)
        known = layout.configs.keys() | self._unloaded | self._tasks.under_way
        self.catalog.forget_ended(known)
        for name in self.overrides.keys() - known - set(self._loads):  # a later model of this name is another one
            del self.overrides[name]
        unknown = {layout.configs[name].base_path for name in layout.unreadable if name in layout.configs}
        await self._intake.forget_others({path for paths in layout.models.values() for path in paths.values()}, unknown)

    def _set_labels(self, labels: Mapping[str, Mapping[str, int]]) -> None:
        before, self.catalog.labels = self.catalog.labels, labels
        for name in before.keys() | labels.keys():
            if before.get(name) != labels.get(name):
                self._listener(LabelsChanged(name))

    def _report(self, ignored: frozenset[IgnoredFolder]) -> None:
        """Log ignored folders once, not at every poll."""
        for each in sorted(ignored - self._layout.ignored, key=str):
            logger.warning("%s is ignored: %s", each.path, each.reason)
        self._layout = replace(self._layout, ignored=ignored)

    async def _reconcile(self, name: str) -> None:
        try:
            if name not in self._layout.unreadable:  # it may have become so since: nothing is known about it
                await self._reconciler.reconcile(name, self._layout)
        finally:
            self._readiness.tried(name)


async def _no_mirror() -> None:
    pass
