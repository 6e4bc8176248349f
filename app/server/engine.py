"""The engine, the half of the server that executes: the runtime, its devices, the batcher, the loader and the models.

Protocols use only its repository and the models in it, so with frontends the engine is a process of its own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from app.batching.batcher import Batcher
from app.batching.policy import BatchingOptions, SelfTuning
from app.batching.state import BatcherOptions
from app.config.settings import Settings
from app.core.batch_sizes import BatchSizes
from app.core.bounded_cache import BoundedCache
from app.core.burst import Burst
from app.core.errors import InvalidRequest
from app.core.events import Event, LabelsChanged, Listener, ModelStateChanged
from app.core.interfaces import NO_OVERRIDES, LoadOverrides
from app.core.machine_memory import limit_bytes
from app.loading.loader import Loader
from app.loading.rows.row_proofs import RowProofs
from app.model import Model
from app.pipelines.folding import FoldLimits
from app.pipelines.pipeline_model import PipelineModel
from app.pipelines.served_pipelines import ServedPipelines
from app.repository.disk.disk_layout import PIPELINE_FILE, read_pipeline
from app.repository.disk.examination import nothing_missing
from app.repository.disk.storage import StorageProcesses
from app.repository.memory.load_markers import LoadMarkers
from app.repository.model_config import ModelConfig
from app.repository.model_list_watch import WatchedModels, watch_list
from app.repository.model_roots import ModelRoots
from app.repository.model_sources import ModelList, ModelsFolder
from app.repository.repository import ModelRepository
from app.runtime import (
    CompiledPrograms,
    CompilingRuntime,
    MeteredRuntime,
    Runtime,
    RuntimeOptions,
    VariantOptions,
    missing_part_of,
)
from app.runtimes.by_files import RuntimesByFiles
from app.runtimes.device_thread import DeviceThread
from app.runtimes.tensorflow.variants.variant_cache import default_folder
from app.server.drain_time import DrainTime, why_ending
from app.server.memory import give_back_while_idle, spared_from_collection

logger = logging.getLogger(__name__)

#: The most callers whose weight is remembered. Chosen: as many as have buckets (app/access/rates.py).
_MOST_CALLERS = 65_536

#: Seconds to unload the models at the end, and to wait for a load in progress. Chosen.
_UNLOAD_TIMEOUT_S = 5.0


class Engine:
    """The executing half of a server. Created on any thread; all methods are called on the event loop.

    Args:
        models: the models to serve, a list that may change; None serves the folder that the settings name.
        max_queue_bytes: bytes of the tensors that may wait.
        burst: see Batcher.
    """

    def __init__(
        self,
        settings: Settings,
        models: WatchedModels | None,
        listener: Listener,
        max_queue_bytes: float,
        burst: Burst,
    ) -> None:
        # What it is told, and how it ends.
        self.settings = settings
        self.sizes = (
            BatchSizes.of(settings.max_batch_size, settings.batch_sizes) if settings.batching else BatchSizes((1,))
        )
        self.leaving = False  # it is about to drain
        self.draining = asyncio.Event()
        self.drain_time = DrainTime(settings.drain_timeout_s)
        self._models = models
        self._listener = listener
        self._max_queue_bytes = max_queue_bytes
        self._burst = burst

        # The parts that `start` makes.
        self._runtime: RuntimesByFiles | None = None
        self._batcher: Batcher | None = None
        self._loader: Loader | None = None
        self._pipelines: ServedPipelines | None = None
        self._tasks: list[asyncio.Task[None]] = []

        # Options of models and weights of callers, which may change while it serves.
        self._batching_options: dict[str, BatchingOptions] = {}
        self._caller_weights: BoundedCache[str, float] = BoundedCache(_MOST_CALLERS)
        self._delays: dict[str, float] = {}  # by model, as the last load wanted, in milliseconds

        # The models.
        self._roots = ModelRoots(settings.model_roots)
        cache = _cache_folder(settings)
        self._markers = LoadMarkers(None if cache is None else cache / "loading", limit_bytes)
        self._roots.extend(models.configs if models else ())
        self.repository = ModelRepository(
            ModelList(models.configs) if models else ModelsFolder(settings.models),
            self._load,
            self._heard(listener),
            settings.poll_interval_s,
            settings.default_model,
            labels_anywhere=bool(models and models.labels_anywhere),
            strict_readiness=settings.strict_readiness,
            storage=StorageProcesses(),
            empty_grace_s=settings.empty_grace_s,
            missing_part=missing_part_of(settings.runtime) or nothing_missing,
            settle_s=settings.settle_s,
            why_waiting=self._why_waiting,
            markers=self._markers,
        )

    def weigh_caller(self, name: str, weight: float) -> None:
        """Sets a caller's share of the devices' time beside other callers; 1 is the default."""
        if weight == 1:
            self._caller_weights.pop(name, None)
        else:
            self._caller_weights.keep(name, weight)

    # --- life ---

    async def start(self) -> None:
        """Start the runtime, and return when every model has loaded or failed to load.

        Raises:
            ServingError: with wait_for_models, a model could not be loaded.
            Exception: whatever keeps the runtime from starting.
        """
        settings = self.settings
        self._loop = asyncio.get_running_loop()
        options = runtime_options(settings)

        # 1. The runtime, while the models folder is looked at.
        looking = asyncio.create_task(self.repository.look(), name="look at models")
        # A thread of its own: the end of the event loop waits for the threads of its pool, and imports take seconds.
        importing = ThreadPoolExecutor(1, "runtime")
        try:
            with spared_from_collection():
                runtime = await self._loop.run_in_executor(importing, RuntimesByFiles, settings.runtime, options)
                await looking
        finally:
            importing.shutdown(wait=False)
            looking.cancel()

        # 2. The batcher, and the loaders of models and pipelines.
        self._batcher = batcher = create_batcher(
            settings,
            runtime,
            self._listener,
            self._max_queue_bytes,
            burst=self._burst,
            caller_weights=self._caller_weights,
        )
        self._runtime = runtime
        self._begin(give_back_while_idle(lambda: batcher.idle), "give back memory")
        self._loader = Loader(
            settings,
            self.sizes,
            runtime,
            self._batcher,
            tell=self._tell_from_thread,
            on_loop=self._call_from_thread,
            proofs=RowProofs(_cache_folder(settings)),
        )
        self._pipelines = ServedPipelines(
            self.repository.resolve,
            batcher,
            self.sizes,
            settings.max_row_elements,
            FoldLimits(settings.fold_nodes, settings.fold_memory_mb << 20),
            time.monotonic,  # the batcher's: uvloop's own stands still within a turn, and counts milliseconds
            self._listener,
        )

        # 3. The models.
        await self.repository.start()
        if settings.wait_for_models:
            await self.repository.wait_until_available()
        if self._models is not None:
            self._begin(watch_list(self._models, self._reload_listed), "watch model list")

    def _begin(self, task: Coroutine[None, None, None], name: str) -> None:
        """Begins a task that runs until the engine closes."""
        self._tasks.append(asyncio.create_task(task, name=name))

    def begin_grace(self) -> None:
        """Become unready, and serve as before."""
        self.leaving = True
        self._markers.close()

    def begin_drain(self) -> None:
        """Become unready, reject new requests, and make everything that waits due."""
        self.draining.set()
        self._markers.close()
        if self._loader is not None:
            self._loader.close()
        if self._batcher is not None:
            self._batcher.begin_drain()

    @property
    def drained(self) -> bool:
        """Whether a drain has begun and everything accepted is answered."""
        return self.draining.is_set() and (self._batcher is None or self._batcher.drained)

    async def drain(self) -> bool:
        """Wait until all accepted requests are answered; False if `drain_time` ran out or was abandoned."""
        self.begin_drain()
        return await self.drain_time.wait(self._batcher.drain if self._batcher else None, self._batcher)

    async def close(self, drained: bool) -> bool:
        """Unload the models if drained, and end the threads. False if not drained, or if a load was not waited for."""
        unloaded = False
        for task in self._tasks:
            task.cancel()
        if drained:
            with suppress(TimeoutError):  # a load in progress may take long, and its result is not needed any more
                async with asyncio.timeout(_UNLOAD_TIMEOUT_S):
                    await self.repository.close()
                    unloaded = True
        self.repository.leave_storage()
        if self._batcher is not None:
            self._batcher.close()
        return unloaded

    # --- batching ---

    def batching_options(self, model: str) -> BatchingOptions:
        """The options by which the batches of a model are formed now. Raises ModelNotFound, ModelNotReady."""
        self.repository.resolve(model)
        return self._batching_options.get(model, _batching_options(self.settings, model))

    def tune(self, model: str, options: BatchingOptions) -> None:
        """Use these options for all versions of a model, from the next batch on, until the server ends.

        Raises:
            ModelNotFound, ModelNotReady: there is no such model.
            InvalidRequest: a value does not fit the model, or it is a pipeline; nothing was changed.
        """
        found = self.repository.resolve(model)
        if isinstance(found, PipelineModel):
            raise _no_batches_of_its_own(model)
        options.check_largest(found.sizes.largest)
        self._use(model, options)

    def _use(self, model: str, options: BatchingOptions) -> None:
        assert self._batcher is not None  # noqa: S101 - a model is loaded, so the batcher is there
        self._batching_options[model] = options
        self._batcher.tune(model, SelfTuning(options), options.weight)

    # --- models ---

    async def reload_for_caller(self, configs: Sequence[ModelConfig]) -> None:
        """Serves exactly these models. Raises Forbidden if one lies outside of the roots, else as the repository."""
        self._roots.check(configs)
        await self.repository.reload(configs)

    async def _reload_listed(self, configs: Sequence[ModelConfig]) -> None:
        """Serves the list that the operator changed."""
        self._roots.extend(configs)
        await self.repository.reload(configs)

    def _load(self, name: str, version: int, path: Path) -> Model | PipelineModel:
        """Loads a version for the repository, on a loader thread."""
        assert self._loader is not None  # noqa: S101 - the repository starts after the loader is there
        overrides = self.repository.overrides.get(name, NO_OVERRIDES)
        if (path / PIPELINE_FILE).is_file():
            return self._load_pipeline(name, version, path, overrides)
        model = self._loader.load(name, version, path, overrides.batch_sizes)
        self._call_from_thread(partial(self._add_version, name, overrides))
        return model

    def _load_pipeline(self, name: str, version: int, path: Path, overrides: LoadOverrides) -> PipelineModel:
        """Loads a pipeline, on a loader thread; its models are looked up on the event loop."""
        if overrides != NO_OVERRIDES:
            raise _no_batches_of_its_own(name)
        text = read_pipeline(path)

        async def load() -> PipelineModel:
            assert self._pipelines is not None  # noqa: S101 - the repository starts after they are there
            return self._pipelines.load(name, version, text)

        return asyncio.run_coroutine_threadsafe(load(), self._loop).result()

    def pipelines(self) -> Sequence[PipelineModel]:
        """All versions of pipelines that are served."""
        return self._pipelines.models if self._pipelines is not None else ()

    def _why_waiting(self, text: bytes) -> str:
        return self._pipelines.why_waiting(text) if self._pipelines is not None else ""

    def _heard(self, listener: Listener) -> Listener:
        """A listener by which pipelines follow their models in the next turn of the loop, when these are there."""

        def hear(event: Event) -> None:
            listener(event)
            if isinstance(event, ModelStateChanged | LabelsChanged) and self._pipelines is not None:
                self._loop.call_soon(self._pipelines.refresh)

        return hear

    def _add_version(self, name: str, overrides: LoadOverrides) -> None:
        """Keeps room in the queue for the model; the delay of its batches is that of its load, else of the settings."""
        assert self._batcher is not None  # noqa: S101 - the loader has it
        self._batcher.add_version(name)
        delay_ms, before = overrides.max_batch_delay_ms, self._delays.pop(name, None)
        if delay_ms is not None:
            self._delays[name] = delay_ms
        if delay_ms != before:
            options = _batching_options(self.settings, name)
            self._use(name, options if delay_ms is None else options.changed({"max_batch_delay_ms": delay_ms}))

    def _tell_from_thread(self, event: Event) -> None:
        self._call_from_thread(partial(self._listener, event))

    def _call_from_thread(self, work: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: the server did not wait for this load
            self._loop.call_soon_threadsafe(work)

    # --- health ---

    @property
    def devices(self) -> Sequence[str]:
        """The devices that models run on; empty before the runtime has started."""
        return self._runtime.devices if self._runtime is not None else ()

    def compiled_programs(self) -> CompiledPrograms | None:
        """The runtimes' compiled programs; None if none compiles, or none has started."""
        compiling = (each for each in self._runtimes if isinstance(each, CompilingRuntime))
        return next((each.compiled_programs for each in compiling), None)

    def device_memory(self) -> Mapping[str, tuple[int, int]]:
        """The bytes in use, and the most that were, by device; only for devices with their own memory."""
        metered = (each.device_memory() for each in self._runtimes if isinstance(each, MeteredRuntime))
        return {device: used for memory in metered for device, used in memory.items()}

    @property
    def _runtimes(self) -> Sequence[Runtime]:
        """The runtimes that have started."""
        return self._runtime.started if self._runtime is not None else ()

    @property
    def batcher(self) -> Batcher | None:
        """The batcher; None before the runtime has started."""
        return self._batcher

    def queue_rows(self) -> int:
        return self._batcher.queue.rows if self._batcher is not None else 0

    def queue_bytes(self) -> int:
        return self._batcher.queue.bytes if self._batcher is not None else 0

    def kept_row_bytes(self) -> int:
        return self._batcher.kept_row_bytes if self._batcher is not None else 0

    def dead(self) -> list[str]:
        reasons = [] if self.repository.alive() else ["The models folder is no longer watched"]
        if self._batcher is not None:
            reasons += self._batcher.failures(self.settings.stuck_after_s)
        return reasons

    def unready(self) -> list[str]:
        reasons = why_ending(leaving=self.leaving, draining=self.draining.is_set())
        if self._loader is None:
            reasons.append("The runtime is starting")
        elif loading := self.repository.unready_reasons():
            reasons += [*loading, *self._loader.progress]
        return reasons


def _no_batches_of_its_own(pipeline: str) -> InvalidRequest:
    return InvalidRequest(f"Model {pipeline} is a pipeline: its batches are those of its models")


def _cache_folder(settings: Settings) -> Path | None:
    """The folder that keeps what is found out about models; None without one."""
    return Path(settings.variant_cache) if settings.variant_cache else default_folder()


def runtime_options(settings: Settings) -> RuntimeOptions:
    return RuntimeOptions(
        settings.intra_op_threads,
        settings.inter_op_threads,
        settings.batches_in_flight,
        settings.replicas,
        VariantOptions(settings.execution_variant, _cache_folder(settings)),
        tuple(settings.allowed_operations),
        settings.tensor_float_32,
        tuple(settings.operation_libraries),
    )


def create_batcher(
    settings: Settings,
    runtime: Runtime,
    listener: Listener,
    max_queue_bytes: float,
    *,
    burst: Burst,
    caller_weights: Mapping[str, float],
) -> Batcher:
    return Batcher(
        _device_threads(runtime, settings.stuck_after_s),
        SelfTuning(_batching_options(settings)),
        BatcherOptions(
            settings.max_queue_size,
            max_queue_bytes,
            max_inline_s=settings.max_inline_ms / 1000,
            admission=settings.admission,
            weights=settings.model_weights,
            preserve_order=settings.preserve_order,
            fair_callers=bool(settings.fair_callers),
            caller_weights=caller_weights,
        ),
        listener,
        burst=burst,
    )


def _device_threads(runtime: Runtime, stuck_after_s: float) -> list[DeviceThread]:
    """A thread for each batch in flight. Threads of one device share its hardware unless the runtime is parallel."""
    count = runtime.batches_in_flight
    return [
        DeviceThread(
            name, stuck_after_s, replica=replica, hardware=replica * count + number if runtime.parallel else replica
        )
        for replica, name in enumerate(runtime.devices)
        for number in range(count)
    ]


def _batching_options(settings: Settings, model: str = "") -> BatchingOptions:
    return BatchingOptions(
        max_batch_delay_ms=settings.max_batch_delay_ms,
        target_p99_ms=settings.target_p99_ms,
        weight=settings.model_weights.get(model, 0.0),
    )
