"""The reconciler, which loads and unloads versions until the servables of a model match the versions on disk."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.core.events import Listener
from app.core.machine_memory import PeakMemory, available_bytes, give_back, limit_bytes
from app.core.versions import ModelProblem, ProblemKind, VersionState, printable
from app.repository.catalog import Catalog
from app.repository.disk.disk_layout import (
    DiskLayout,
    Fingerprint,
    VersionFiles,
    is_pipeline,
    read_pipeline,
    version_files,
)
from app.repository.disk.intake import Held, Intake
from app.repository.disk.local_copies import LocalCopies
from app.repository.disk.retries import Retries
from app.repository.disk.storage import StorageProcesses
from app.repository.memory.load_estimates import LoadEstimates
from app.repository.memory.load_markers import LoadMarkers
from app.repository.memory.load_room import LoadRoom, NoMemoryToLoad
from app.repository.servable import Servable
from app.repository.version_policy import VersionPolicy

if TYPE_CHECKING:
    from app.model import Model
    from app.pipelines.pipeline_model import PipelineModel

logger = logging.getLogger(__name__)

#: Problems that end by themselves as a rule. If one stays, /health, the metrics and an alert say so.
_EXPECTED = frozenset({ProblemKind.WAITING, ProblemKind.CHANGING, ProblemKind.READING})

#: Loads and warms up a model by name, version and folder. Blocking; called on a loader thread.
LoadModel = Callable[[str, int, Path], "Model | PipelineModel"]

#: Says which models a pipeline lacks, by its text, as the end of a sentence; empty if none, or if the text is wrong.
WhyWaiting = Callable[[bytes], str]

#: The most loads that run side by side. Chosen: TensorFlow reads a graph on one core.
_MOST_LOADS = min(4, os.cpu_count() or 1)

#: Seconds between two times that freed memory is given back while a load is refused. Chosen: it takes 0.05 s a GB.
_GIVE_BACK_S = 10.0

#: The most ended versions of a model whose statuses are kept. Chosen.
_ENDED_KEPT = 8


class Reconciler:
    """Loads and unloads the versions of a repository; of one model, one load at a time.

    Its caller makes no two calls for one model at the same time.
    """

    def __init__(
        self,
        catalog: Catalog,
        load: LoadModel,
        listener: Listener,
        mirrored: Callable[[], Awaitable[None]],
        *,
        storage: StorageProcesses,
        intake: Intake,
        copies: LocalCopies,
        clock: Callable[[], float],
        why_waiting: WhyWaiting,
        room: LoadRoom | None = None,
        markers: LoadMarkers | None = None,
    ) -> None:
        # The parts that it uses.
        self._catalog = catalog
        self._load_model = load
        self._listener = listener
        self._mirrored = mirrored
        self._storage = storage
        self._intake = intake
        self._why_waiting = why_waiting
        self._copies = copies
        self._retries = Retries(clock)

        # The memory for loads.
        self._room = room or LoadRoom(_MOST_LOADS, available_bytes, limit_bytes)
        self._markers = markers or LoadMarkers(None, limit_bytes)
        self._estimates = LoadEstimates()
        self._clock = clock
        self._gives_back_s = -inf  # when freed memory may be given back again
        #: Versions held for lack of memory: their files, and the first reason, which is told while the files stay.
        self._refused: dict[tuple[str, int], tuple[Fingerprint, str]] = {}

        # Threads and tasks.
        self._loader = ThreadPoolExecutor(_MOST_LOADS, thread_name_prefix="loader")
        self._unloading: dict[asyncio.Task[None], str] = {}
        #: Models of which the last `reconcile` left out a version on disk that was still being unloaded.
        self._left_out: set[str] = set()
        self._stopping = False

    async def reconcile(self, name: str, layout: DiskLayout) -> None:
        """Load the versions of a model that the policy wants, then unload the others.

        The others stay until all wanted versions are available, so that the model is served at any time.
        """
        servables = self._catalog.models.setdefault(name, {})
        self._left_out.discard(name)
        if name not in layout.models:
            self._catalog.held.pop(name, None)
            self._estimates.forget(name)
            self._forget_refused(name)
            self._unload_all(servables.values())
        else:
            await self._update(name, servables, layout)
        _drop_old_endings(servables)

    async def _update(  # noqa: C901 - one step after the other
        self, name: str, servables: dict[int, Servable], layout: DiskLayout
    ) -> None:
        # 1. Hold the wanted versions whose folders have neither graph nor pipeline.
        folders, policy = dict(layout.models[name]), layout.configs[name].policy
        incomplete = layout.incomplete.get(name, {})
        held = {
            version: Held(ProblemKind.MISSING, incomplete[version])
            for version in policy(folders.keys() | incomplete.keys()) & incomplete.keys()
        }

        # 2. Load the other wanted versions, the newest first; note why some of them are held. A version that is still
        #    being unloaded is left out; `unloaded` tells that a further `reconcile` may load it.
        if any(_ends(servables[version]) for version in servables.keys() & folders.keys()):
            self._left_out.add(name)
        await self._reset_failed(servables, folders, layout)
        while (missing := _wanted(policy, servables, folders) - self._catalog.available(name)) and not self._stopping:
            version = max(missing)
            files = await self._files(layout, folders[version])
            if problem := await self._examine(name, version, folders[version], files):
                held[version] = problem
                del folders[version]
            elif full := await self._load(name, version, folders[version], files.fingerprint):
                held[version] = full
                del folders[version]

        # 3. Unload the others when all wanted versions are available.
        wanted, available = _wanted(policy, servables, folders), self._catalog.available(name)
        if wanted and wanted <= available:
            for version in available - wanted:
                self._unload(servables[version])

        # 4. Load anew the versions whose files changed under the same number.
        changed = {}
        for version in wanted & available:
            if problem := await self._follow_changes(servables[version], folders[version], layout):
                changed[version] = problem

        # 5. Tell what is held, unless the server stops.
        if not self._stopping:
            self._log_held(name, held, changed, logged=incomplete)

    async def _examine(self, name: str, version: int, folder: Path, files: VersionFiles) -> Held | None:
        """The reason why a version is held; None if it is not. Meanwhile its status says that it is being read."""
        reading = ModelProblem(name, version, ProblemKind.READING, f"Model {name} version {version} is being read")
        self._catalog.held.setdefault(name, {}).setdefault(version, reading)
        held = await self._intake.held(folder, files, partial(self._log_copying, name, version))
        if held is None and is_pipeline(files.fingerprint):
            with suppress(OSError):  # its load raises it again
                if why := self._why_waiting(await self._storage.call(read_pipeline, folder)):
                    return Held(ProblemKind.WAITING, f"it {why}")
        return held or await self._no_memory(name, version, files.fingerprint)

    async def _no_memory(self, name: str, version: int, files: Fingerprint) -> Held | None:
        """The reason why a version is held for lack of memory, worded the same at each poll; None if there is room."""
        if is_pipeline(files):
            return None
        if why := self._markers.why_left_out(name, version, files):
            return Held(ProblemKind.NO_MEMORY, why)
        if why := await self._why_no_room(self._estimates.need(name, files)):
            return self._refuse(name, version, files, why)
        self._refused.pop((name, version), None)
        return None

    async def _why_no_room(self, needed: int) -> str:
        """Why memory does not suffice; empty if it does. If not, freed memory is given back first, if that is due."""
        why = self._room.why_not(needed)
        if why and self._clock() >= self._gives_back_s:
            self._gives_back_s = self._clock() + _GIVE_BACK_S
            await asyncio.to_thread(give_back)
            why = self._room.why_not(needed)
        return why

    def _refuse(self, name: str, version: int, files: Fingerprint, why: str) -> Held:
        files_before, why_before = self._refused.get((name, version), (files, why))
        reason = why_before if files_before == files else why
        self._refused[name, version] = files, reason
        return Held(ProblemKind.NO_MEMORY, reason)

    def _forget_refused(self, name: str) -> None:
        for key in [key for key in self._refused if key[0] == name]:
            del self._refused[key]

    def retry_left_out(self, name: str) -> None:
        """Let a model be loaded although a load of it may have ended the server."""
        self._markers.forget(name)

    def _log_copying(self, name: str, version: int, why: str) -> None:
        text = f"Model {name} version {version} is copied to a local folder, to be loaded from there: {printable(why)}"
        held = self._catalog.held.get(name, {})
        if version in held and held[version].kind is ProblemKind.READING:
            held[version] = held[version]._replace(text=text)
        logger.info("%s", text)

    async def _follow_changes(self, servable: Servable, folder: Path, layout: DiskLayout) -> Held | None:
        """Load an available version anew if its files changed. Returns the reason if that is not possible."""
        files = await self._files(layout, folder)
        if not files.fingerprint or (files.fingerprint == servable.files and not servable.outdated):
            return None
        key = servable.name, servable.version
        refused = servable.refused is not None and servable.refused[0] == files.fingerprint
        if not refused or self._retries.due(key):
            held = await self._intake.held(folder, files, partial(self._log_copying, *key))
            held = held or await self._no_memory(*key, files.fingerprint)
            held = held or await self._load_anew(servable, folder, files.fingerprint)
            if held:
                return held
        return Held(ProblemKind.FAILED, servable.refused[1]) if servable.refused else None

    async def _files(self, layout: DiskLayout, folder: Path) -> VersionFiles:
        known = layout.files.get(folder)
        return known if known is not None else await self._storage.call(version_files, folder)

    def _log_held(
        self, name: str, held: Mapping[int, Held], changed: Mapping[int, Held], *, logged: Collection[int]
    ) -> None:
        """Note the held versions, and log each reason once; those of the versions `logged` are in the log."""
        before = self._catalog.held.get(name, {})
        now = self._catalog.held[name] = {
            version: ModelProblem(
                name, version, each.kind, printable(f"Model {name} version {version} {what}: {each.reason}")
            )
            for versions, what in ((held, "is not loaded"), (changed, "changed on disk and is not loaded anew"))
            for version, each in versions.items()
        }
        serving = sorted(self._catalog.available(name))
        for version, problem in now.items():
            if before.get(version) != problem and version not in logged:
                follows = f"version {serving[-1]} keeps serving" if serving else "no version is served"
                level = logging.INFO if problem.kind in _EXPECTED else logging.WARNING
                logger.log(level, "%s; %s", problem.text, follows)

    async def unloaded(self, name: str) -> bool:
        """Wait for the versions of a model that are being unloaded.

        True if there were any, or the last `reconcile` left one out: then a further `reconcile` may load it.
        """
        unloading = [task for task, model in self._unloading.items() if model == name]
        if unloading:
            await asyncio.wait(unloading)
        return bool(unloading) or name in self._left_out

    def stop(self) -> None:
        """Begin no further load."""
        self._stopping = True

    async def close(self) -> None:
        """Wait for the requests that the models accepted, then unload all models."""
        self._unload_all(self._catalog.servables())
        await asyncio.gather(*self._unloading)
        self._loader.shutdown()

    async def _load(self, name: str, version: int, folder: Path, files: Fingerprint) -> Held | None:
        """Load a version. Returns the reason if it was not tried, as memory went to other loads while it waited."""
        servables = self._catalog.models[name]
        if version not in servables or not servables[version].kept:
            servables[version] = Servable(name, version, self._listener)
        servable = servables[version]
        try:
            async with self._taken(name, version, files):
                if self._stopping:
                    return None
                await servable.load(self._in_loader(servable, folder, files), files)
        except NoMemoryToLoad as error:
            servables.pop(version).withdraw()
            return self._refuse(name, version, files, str(error))
        self._plan_retry(servable, failed=servable.failed_on is not None)
        return None

    async def _load_anew(self, servable: Servable, folder: Path, files: Fingerprint) -> Held | None:
        """As `_load`, beside the served version, which stays if the load fails."""
        try:
            async with self._taken(servable.name, servable.version, files):
                if self._stopping or servable.model is None:
                    return None
                unused = await servable.load_anew(self._in_loader(servable, folder, files), files)
        except NoMemoryToLoad as error:
            return self._refuse(servable.name, servable.version, files, str(error))
        self._plan_retry(servable, failed=unused is None)
        if unused is not None:
            self._in_background(self._close(unused), servable.name)
        return None

    def _taken(self, name: str, version: int, files: Fingerprint) -> AbstractAsyncContextManager[None]:
        """A slot and the memory for a load. A pipeline has no weights."""
        needed = 0 if is_pipeline(files) else self._estimates.need(name, files)
        return self._room.take(needed, alone=self._markers.loads_alone(name, version))

    async def _in_loader(self, servable: Servable, folder: Path, files: Fingerprint) -> Model | PipelineModel:
        """Load a version on a loader thread, from its local copy if there is one. Raises what the load raises."""
        loop, copy, model = asyncio.get_running_loop(), self._copies.take(folder), None
        try:
            model = await loop.run_in_executor(self._loader, self._marked, servable, copy or folder, files)
        finally:
            if copy is not None:
                await self._loaded(copy, model)
        return model

    def _marked(self, servable: Servable, folder: Path, files: Fingerprint) -> Model | PipelineModel:
        """Load on a loader thread, marked on disk. Its memory is noted if no other load ran."""
        name, version = servable.name, servable.version
        if is_pipeline(files):
            return self._load_model(name, version, folder)
        was_alone, needed = self._room.one_runs, self._estimates.need(name, files)
        peak = PeakMemory()
        try:
            with self._markers.loading(name, version, files, tight=self._room.is_tight_for(needed)), peak:
                return self._load_model(name, version, folder)
        finally:
            if was_alone and self._room.one_runs:
                self._estimates.note(name, files, peak.bytes)

    async def _loaded(self, copy: Path, model: Model | PipelineModel | None) -> None:
        """End the load from a local copy. If this raises, the model is closed, as no caller gets it."""
        try:
            await self._copies.loaded(copy, model)
        except BaseException:
            if model is not None:
                self._in_background(self._close(model), model.name)
            raise

    def _plan_retry(self, servable: Servable, *, failed: bool) -> None:
        key = servable.name, servable.version
        if failed and servable.may_pass:
            pause_s = self._retries.failed(key)
            logger.warning("%s is loaded again in %g s: what made it fail may pass", servable, pause_s)
        else:
            self._retries.forget(key)

    async def _reset_failed(
        self, servables: Mapping[int, Servable], folders: Mapping[int, Path], layout: DiskLayout
    ) -> None:
        """Let failed versions be tried again if their files changed or were deleted, or the failure may have passed."""
        for version, servable in servables.items():
            if servable.failed_on is None:
                continue
            folder = folders.get(version)
            if folder is None or (await self._files(layout, folder)).fingerprint != servable.failed_on:
                self._retries.forget((servable.name, version))
                servable.failed_on = None
            elif self._retries.due((servable.name, version)):
                servable.failed_on = None

    def _unload_all(self, servables: Iterable[Servable]) -> None:
        for servable in servables:
            servable.failed_on = None
            self._retries.forget((servable.name, servable.version))
            if servable.model:
                self._unload(servable)

    def _unload(self, servable: Servable) -> None:
        """Unload a version in its own task, so that its slow answers do not delay other changes."""
        self._retries.forget((servable.name, servable.version))
        self._in_background(self._end(servable), servable.name)

    async def _end(self, servable: Servable) -> None:
        model = servable.model
        self._gives_back_s = -inf  # held versions may get its memory
        await servable.unload(self._mirrored)
        if model is not None:
            await self._copies.unloaded(model)

    async def _close(self, model: Model | PipelineModel) -> None:
        """Wait until frontends' copies of the catalog are up to date, then close a model that the catalog lacks."""
        try:
            await self._mirrored()
            await model.close()
            await self._copies.unloaded(model)
        except Exception:
            text = "A load of version %d of model %s that serves nothing may still hold memory or a local copy"
            logger.exception(text, model.version, model.name)

    def _in_background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work)
        self._unloading[task] = name
        task.add_done_callback(self._unloading.pop)


def _wanted(policy: VersionPolicy, servables: Mapping[int, Servable], folders: Mapping[int, Path]) -> set[int]:
    """The versions that the policy wants, without those that failed or are still being unloaded.

    A version that is being unloaded while pipelines use it counts, too: it may stay in use until it is loaded again.
    """
    excluded = {number for number, servable in servables.items() if servable.failed_on is not None or _ends(servable)}
    return policy(folders.keys() - excluded)


def _ends(servable: Servable) -> bool:
    return servable.state is VersionState.UNLOADING and not servable.kept


def _drop_old_endings(servables: dict[int, Servable]) -> None:
    """Drop the statuses of all but the newest ended versions, which people read."""
    ended = sorted(version for version, servable in servables.items() if servable.ended)
    for version in ended[:-_ENDED_KEPT]:
        del servables[version]
