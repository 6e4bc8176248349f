"""The composition root: the one file that knows everyone. Start, serve, drain, stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from app import __version__
from app.batching.batcher import Batcher
from app.batching.padding import BatchSizes
from app.batching.policy import create_policy
from app.errors import ServingError
from app.events import Event, Listener
from app.instrumentation import metrics
from app.instrumentation.logs import log_event
from app.instrumentation.tensorflow_metrics import TensorFlowMetrics
from app.model import Model
from app.protocols.batching_parameters import FILE_NAME as PARAMETERS_FILE
from app.protocols.batching_parameters import read_batching_parameters
from app.protocols.grpc_server import GrpcOptions, GrpcServer
from app.protocols.http import HttpLimits
from app.protocols.tensorflow_grpc import TensorFlowGrpc
from app.protocols.tensorflow_rest import TensorFlowRest
from app.repository.list_watch import ListedModels, follow
from app.repository.repository import ModelRepository
from app.repository.sources import ModelList, ModelsFolder
from app.runtime import Runtime, RuntimeOptions, create_runtime
from app.runtimes.device_thread import DeviceThread
from app.settings import Settings
from app.warm_up import warm_up

logger = logging.getLogger(__name__)

#: After the drain only answers that are being written are left; they get this long.
_CLOSE_TIMEOUT_S = 5.0

_UNLOAD_TIMEOUT_S = 5.0


class Server:
    """Everything that one process serves with. Made anywhere, started on the event loop.

    Args:
        models: the models to serve, which callers may change; None takes those of the folder that the settings name.
        grpc: where and how gRPC is served; None takes what the settings say.
    """

    def __init__(self, settings: Settings, models: ListedModels | None = None, grpc: GrpcOptions | None = None) -> None:
        self.settings = settings
        self._models = models
        self.failure = ""
        self._runtime: Runtime | None = None
        self._batcher: Batcher | None = None
        self._starting: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None
        self._draining = asyncio.Event()
        self._warming: dict[tuple[str, int], str] = {}
        self._started_s = time.monotonic()
        self._metrics = metrics.Metrics(self._queue_rows)
        self._tensorflow_metrics = TensorFlowMetrics() if settings.metrics_path else None
        self._listener = _tell_all(self._metrics, log_event, *filter(None, [self._tensorflow_metrics]))
        self._sizes = _batch_sizes(settings)
        self.repository = ModelRepository(
            ModelList(models.configs) if models else ModelsFolder(settings.models),
            self._load,
            self._listener,
            settings.poll_interval_s,
            settings.default_model,
            labels_anywhere=bool(models and models.labels_anywhere),
        )
        limits = HttpLimits(settings.max_body_bytes, settings.request_timeout_ms)
        self.tensorflow_rest = TensorFlowRest(self.repository, self._listener, limits)
        tensorflow_grpc = TensorFlowGrpc(
            self.repository,
            self._listener,
            max_message_bytes=settings.grpc_max_message_bytes,
            timeout_ms=settings.request_timeout_ms,
            tensor_content=settings.tensor_content,
            reload=self.repository.reload if models else None,
        )
        services = tensorflow_grpc.handlers()
        self.grpc = GrpcServer(grpc or grpc_options(settings), services, lambda: not (self.dead() or self.unready()))

    # --- life ---

    async def start(self) -> None:
        """Returns at once, unless it is to wait for the models. Until they are loaded /readyz says what is missing."""
        self._starting = asyncio.create_task(self._start(), name="start")
        if self.settings.wait_for_models:
            drain = asyncio.create_task(self._draining.wait())
            await asyncio.wait({self._starting, drain}, return_when=asyncio.FIRST_COMPLETED)
            drain.cancel()
            if self.failure:
                return
        try:
            await self.grpc.start()
        except OSError as error:
            self.failure = self.failure or f"Ferry could not start: {error}"
            logger.error("%s", self.failure)

    async def _start(self) -> None:
        settings = self.settings
        try:
            options = RuntimeOptions(settings.intra_op_threads, settings.inter_op_threads)
            runtime = await asyncio.to_thread(create_runtime, settings.runtime, options)
            _spare_from_collection()
            lanes = [device for device in runtime.devices for _ in range(settings.batches_in_flight)]
            devices = [DeviceThread(name, settings.stuck_after_s) for name in lanes]
            policy = create_policy(settings.batching_policy, settings.max_batch_delay_ms / 1000)
            self._batcher = Batcher(devices, policy, settings.max_queue_size, self._listener)
            self._runtime = runtime
            await self.repository.start()
            if settings.wait_for_models:
                await self.repository.wait_until_available()
            if self._models is not None:
                self._following = asyncio.create_task(follow(self._models, self.repository.reload), name="follow list")
        except ServingError as error:
            self.failure = f"Failed to start server. Error: {error}"
            logger.error("%s", self.failure)
        except Exception as error:
            logger.exception("Ferry could not start")
            self.failure = f"Ferry could not start: {error}"

    def begin_drain(self) -> None:
        """Not ready, nothing new accepted, everything that waits is due."""
        self._draining.set()
        if self._batcher is not None:
            self._batcher.begin_drain()

    async def drain(self) -> bool:
        """Waits until everything accepted is answered; False where the time for that ran out."""
        self.begin_drain()
        if self._batcher is None:
            return True
        try:
            async with asyncio.timeout(self.settings.drain_timeout_s):
                await self._batcher.drain()
        except TimeoutError:
            logger.error("Not drained after %g s: %r", self.settings.drain_timeout_s, self._batcher)
            return False
        return True

    async def stop(self) -> None:
        """Drains, unloads and ends the threads. A load under way is left to itself."""
        drained = await self.drain()
        await self.grpc.stop(_CLOSE_TIMEOUT_S if drained else 0)
        if self._following is not None:
            self._following.cancel()
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
        elif drained:
            with suppress(TimeoutError):  # a load under way may take long, and nobody waits for it any more
                async with asyncio.timeout(_UNLOAD_TIMEOUT_S):
                    await self.repository.close()
        if self._batcher is not None:
            self._batcher.close()

    # --- models ---

    def _load(self, name: str, version: int, path: Path) -> Model:
        """Reads and warms up a model, blocking: called on the repository's loader thread."""
        assert self._runtime is not None  # noqa: S101 - the repository starts after the runtime
        assert self._batcher is not None  # noqa: S101 - as above
        settings = self.settings
        sizes = self._sizes
        if settings.per_model_batching and settings.batching and (path / PARAMETERS_FILE).exists():
            sizes = read_batching_parameters(path / PARAMETERS_FILE).sizes(sizes)
        loaded = self._runtime.load(path)
        if settings.warm_up:
            try:
                warm_up(loaded, sizes.allowed, partial(self._report_warm_up, name, version))
            finally:
                self._warming.pop((name, version), None)
        return Model(
            name,
            version,
            loaded,
            self._batcher,
            sizes,
            batching=settings.batching,
            strict_shapes=settings.strict_shapes,
        )

    def _report_warm_up(self, name: str, version: int, done: int, total: int, what: str) -> None:
        progress = f"Model {name} version {version} warms up: {done} of {total}, {what}"
        logger.log(logging.INFO if done in {1, total} or done % 10 == 0 else logging.DEBUG, "%s", progress)
        self._warming[name, version] = progress

    # --- health ---

    def dead(self) -> list[str]:
        """Reasons to restart the process."""
        reasons = [self.failure] if self.failure else []
        if not self.repository.alive():
            reasons.append("The models folder is no longer watched")
        if self._batcher is not None:
            reasons += self._batcher.failures(self.settings.stuck_after_s)
        return reasons

    def unready(self) -> list[str]:
        """Reasons to send no requests here now."""
        reasons = ["The server is draining"] if self._draining.is_set() else []
        if self._batcher is None:
            reasons.append("The runtime is starting")
        elif loading := self.repository.unready_reasons():
            reasons += [*loading, *list(self._warming.values())]
        return reasons

    def summary(self) -> dict[str, Any]:
        """What /health shows."""
        unready = [*self.dead(), *self.unready()]
        return {
            "status": "ready" if not unready else "not ready",
            "reasons": unready,
            "ferry": __version__,
            "uptime_s": round(time.monotonic() - self._started_s, 1),
            "runtime": self.settings.runtime,
            "devices": list(self._runtime.devices) if self._runtime else [],
            "queue": {"rows": self._queue_rows(), "max_rows": self.settings.max_queue_size},
            "batch_sizes": list(self._sizes.allowed),
            "models": {
                name: [
                    {"version": status.version, "state": status.state, "error": status.error_message}
                    for status in self.repository.statuses(name)
                ]
                for name in self.repository.names()
            },
        }

    def metrics(self) -> tuple[bytes, str]:
        """The Prometheus page and its content type."""
        page = self._metrics.render()
        if self._tensorflow_metrics is not None:
            page += self._tensorflow_metrics.render()
        return page, metrics.CONTENT_TYPE

    def _queue_rows(self) -> int:
        return self._batcher.queue.rows if self._batcher is not None else 0


def _spare_from_collection() -> None:
    """Takes what the runtime's import left behind out of the garbage collector's sight.

    A full collection walks every object TensorFlow keeps for ever: 0.2 s with the GIL held, seen as the p99.
    """
    gc.collect()
    gc.freeze()


def _batch_sizes(settings: Settings) -> BatchSizes:
    if not settings.batching:
        return BatchSizes((1,))
    return BatchSizes.of(settings.max_batch_size, settings.batch_sizes)


def grpc_options(settings: Settings) -> GrpcOptions:
    return GrpcOptions(settings.host, settings.grpc_port, settings.grpc_max_message_bytes, settings.grpc_unix_socket)


def _tell_all(*listeners: Callable[[Event], None]) -> Listener:
    def tell(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return tell
