"""The server of a frontend process: the protocols of app/server/server.py, with the models of the engine process."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from app.access.audit import Audit
from app.access.rates import Rates
from app.codecs.json.writing import dumps
from app.config.settings import Settings
from app.core.burst import Burst
from app.core.events import Listener, tell_all
from app.core.interfaces import ServedRepository
from app.frontends.frontend.remote_engine import RemoteEngine
from app.instrumentation.metric_lines import content_type_of
from app.protocols.open_inference.api import OpenInference, Patterns
from app.protocols.tensorflow_serving.grpc import Reload
from app.server.access_control import AccessControl
from app.server.client_memory_budget import budget_bytes, client_bytes, container_room
from app.server.drain_time import DrainTime
from app.server.grpc_servers import GrpcServers, grpc_options
from app.server.interrupt_moderation import InterruptModeration
from app.server.traces import Traces
from app.transports import CLOSE_TIMEOUT_S
from app.transports.grpc.options import GrpcOptions
from app.transports.http.long_bodies.reading_processes import ReadingProcesses
from app.transports.memory.client_memory import ClientMemory
from app.transports.rendered_pages import Page, RenderedPages

logger = logging.getLogger(__name__)


class _OpenInference(OpenInference):
    """The Open Inference API of a frontend: statistics and configurations come from the engine."""

    def __init__(self, engine: RemoteEngine, pages: RenderedPages) -> None:
        super().__init__(engine.repository, _not_here, engine, batching=_not_here, pages=pages)
        self.no_regions = "a region is known to one process only, and this server has several (setting frontends)"
        self._engine = engine

    async def _statistics_page(
        self, name: str, version: int | None, form: str, models: Patterns, encoding: str | None
    ) -> Page:
        question = ("statistics", name, "" if version is None else str(version), form, models, encoding)
        return Page(*await self._pages.fetch(question, partial(self._engine.query, *question)))

    async def model_config(self, name: str, version: str = "") -> dict[str, Any]:
        document: dict[str, Any] = await self._engine.query("config", name, version)
        return document


def _not_here(*which: object) -> Any:
    raise NotImplementedError(f"The engine knows this of {which}; a frontend does not")


class FrontendServer:
    """The `Server` (app/server/server.py) of a frontend. Created anywhere, started on the event loop.

    Args:
        engine: path of the Unix socket where the engine accepts frontends.
        grpc: where and how gRPC is served; None takes it from the settings.
        shared: sockets for gRPC to listen on, in place of those that `grpc` says.
        listed: the engine serves a list of models that callers may change.

    Raises:
        TlsError: a certificate or key that the settings name cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        engine: Path,
        grpc: GrpcOptions | None = None,
        shared: Sequence[socket.socket] = (),
        *,
        listed: bool = False,
    ) -> None:
        # 1. The engine in the other process, and how this one ends.
        self.settings = settings
        self.failure = ""
        self.stopped = False
        self.engine = RemoteEngine(engine, settings.stuck_after_s)
        self._grace_s = settings.drain_grace_s
        self._drain_time = DrainTime(settings.drain_timeout_s)
        self.abandon = self._drain_time.abandon

        # 2. Events: who hears of them, who may cause them, and which are traced.
        self._audit = Audit(settings.audit_log)
        self.listener: Listener = tell_all(
            self.engine.subscriptions, self._audit.subscriptions, InterruptModeration(time.monotonic).subscriptions
        )
        self._access_control: AccessControl | None = None
        if settings.access_file:
            rates = Rates(Path(f"{engine}.rates"))
            self._access_control = AccessControl(
                Path(settings.access_file), self.listener, self.engine.weigh_caller, rates
            )
        self.access = self._access_control.access if self._access_control is not None else None
        self.repository: ServedRepository = self.engine.repository
        self.dead, self.unready, self.problems = self.engine.dead, self.engine.unready, self.engine.problems
        share = settings.trace_sample_share
        self._traces = Traces(share, self.listener, batches=False) if settings.traces else None
        self.tracing = self._traces.tracing if self._traces is not None else None

        # 3. What protocols use.
        client_memory = client_bytes(budget_bytes(settings.memory_budget_mb), settings.frontends)
        self.memory = ClientMemory(client_memory, self.listener, container_room(settings.frontends))
        self.draining = self.engine.draining
        self.burst = Burst()
        self.http_connections: Callable[[], int] | None = None
        self.readers = ReadingProcesses(self.memory.room)
        self.pages = RenderedPages()
        self.open_inference: OpenInference = _OpenInference(self.engine, self.pages)
        self.reload: Reload | None = self.engine.reload if listed else None

        # 4. gRPC.
        options = grpc or grpc_options(settings)
        self.tls = options.tls
        if self.tls is not None:
            self.tls.listener = self.listener
        self._following_tls: asyncio.Task[None] | None = None
        self.grpc = GrpcServers(self, options)
        self._shared = shared

    # --- life ---

    async def start(self) -> None:
        """Starts gRPC. With the setting `wait_for_models` it first waits until the engine serves."""
        self.engine.start()
        if self._access_control is not None:
            self._access_control.start()
        if self.tls is not None:
            self._following_tls = asyncio.create_task(self.tls.follow(), name="files of TLS")
        if self.settings.wait_for_models:
            await self.engine.wait_until_connected()
        try:
            await self.grpc.start(self._shared)
        except OSError as error:
            self.failure = f"Ferry could not start: {error}"
            logger.error("%s", self.failure)

    @property
    def grace_s(self) -> float:
        """Seconds for which the frontend still serves after a signal to end; 0 if no model is served."""
        return self._grace_s if self.engine.repository.serves else 0.0

    def skip_grace(self) -> None:
        """From now on a signal begins the drain without a grace."""
        self._grace_s = 0.0

    def begin_grace(self) -> None:
        """The frontend is not ready from now on, but serves as before; gRPC clients get GOAWAY."""
        self.engine.leaving = True
        self.grpc.begin_grace()

    async def end_grace(self) -> None:
        """Returns when all gRPC clients have GOAWAY, and none can connect. Until then the engine rejects nothing."""
        await self.grpc.end_grace()

    async def drain(self) -> bool:
        """Wait until every accepted request is answered. False if `drain_timeout_s` ran out or `abandon` was called."""
        return await self.engine.drain(self._drain_time)

    async def stop(self) -> None:
        drained = await self.drain() and not self._drain_time.abandoned
        self.readers.close()
        if self._following_tls is not None:
            self._following_tls.cancel()
        await self.grpc.stop(CLOSE_TIMEOUT_S if drained else 0)
        if self._access_control is not None:
            await self._access_control.close()
        await self.engine.close()
        self._audit.close()
        if self._traces is not None:
            await self._traces.close()
        self.stopped = True

    # --- pages ---

    async def summary(self, encoding: str | None = None) -> Page:
        """The engine's summary, which covers all frontends; without an engine, why the server is not ready."""
        reasons = [*self.dead(), *self.unready()]
        if not self.engine.answers:
            return Page(dumps({"status": "not ready", "reasons": reasons}))
        return await self._page("summary", encoding)

    async def explain_batching(self, model: str, encoding: str | None = None) -> Page:
        """The engine's page of a model's batching. Raises ModelNotFound, ModelNotReady."""
        self.repository.resolve(model)  # raises: an unknown name must not become a key of `pages`
        return await self._page("explain batching", model, encoding)

    async def tune_batching(self, model: str, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Lets the engine change options of a model, for all frontends; returns all its options.

        Raises:
            ModelNotFound, ModelNotReady, InvalidRequest: nothing is changed.
        """
        options: Mapping[str, Any] = await self.engine.query("tune batching", model, changes)
        return options

    async def metrics(self, accepted: str = "", encoding: str | None = None) -> Page:
        """The engine's page, which counts for all frontends. Raises ModelNotReady if the engine is gone."""
        return await self._page("metrics", content_type_of(accepted), encoding)

    async def _page(self, *question: Any) -> Page:
        """A page of the engine; equal questions that wait share one answer."""
        return Page(*await self.pages.fetch(question, partial(self.engine.query, *question)))
