"""The composition root: puts the parts of one process together, starts, drains and stops them.

http_server.py lists the order of stopping.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from app import __version__
from app.codecs.json.writing import dumps
from app.config.settings import Settings
from app.core.burst import Burst
from app.core.errors import ServingError
from app.instrumentation.state_metrics import ServerState
from app.log_output.standard_streams import dropped_lines
from app.model import Model
from app.protocols.open_inference.api import OpenInference
from app.protocols.open_inference.shared_memory import SharedMemory
from app.protocols.tensorflow_serving.grpc import Reload
from app.repository.model_list_watch import WatchedModels
from app.server.access_control import AccessControl
from app.server.client_memory_budget import budget_bytes, client_bytes, container_room, queue_bytes, tell_largest_bodies
from app.server.engine import Engine
from app.server.first_lines import FirstLines
from app.server.grpc_servers import GrpcServers, grpc_options
from app.server.subscribers import Subscribers
from app.transports import CLOSE_TIMEOUT_S
from app.transports.grpc.options import GrpcOptions
from app.transports.http.compression import compressed_page
from app.transports.http.long_bodies.reading_processes import ReadingProcesses
from app.transports.memory.client_memory import ClientMemory
from app.transports.rendered_pages import Page, Pieces, RenderedPages
from app.transports.tls.texts import TlsError

logger = logging.getLogger(__name__)


class Server:
    """A server: everything that one process serves with. Created on any thread, started on the event loop.

    Args:
        models: the models to serve, a list that may change; None serves the folder that the settings name.
        grpc: where and how gRPC is served; None takes it from the settings.

    Raises:
        TlsError: what settings name for TLS cannot be used, where this process needs it.

    Attributes:
        grpc: None with frontends, which serve it.
        tls: the TLS of new handshakes; the handshakes of frontends read the same files. None without TLS.
        failure: why the server could not start; empty otherwise.
        stopped: True after `stop` if no model is in use or being loaded any more.
    """

    def __init__(
        self, settings: Settings, models: WatchedModels | None = None, grpc: GrpcOptions | None = None
    ) -> None:
        self.settings = settings
        self.failure = ""
        self.stopped = False
        self._starting: asyncio.Task[None] | None = None
        self._following_tls: asyncio.Task[None] | None = None
        self._started_s = time.monotonic()

        # 1. The subscribers to events.
        self.first_lines = FirstLines(settings, "a list" if models else str(settings.models), lambda: self.repository)
        budget = budget_bytes(settings.memory_budget_mb)
        self._subscribers = Subscribers(settings, self.first_lines, self._state, budget)
        self.listener, self.tracing = self._subscribers.listener, self._subscribers.tracing
        options = grpc or _options(settings)
        self.tls = options.tls
        if self.tls is not None:
            self.tls.listener = self.listener
        self.memory = ClientMemory(
            client_bytes(budget, settings.frontends), self.listener, container_room(settings.frontends)
        )
        #: Counts the open HTTP connections; None where frontends have them.
        self.http_connections: Callable[[], int] | None = None

        # 2. The engine, which executes requests.
        self.burst = Burst()
        self.engine = Engine(settings, models, self.listener, queue_bytes(budget), self.burst)
        self.repository, self.draining = self.engine.repository, self.engine.draining
        self.pages = RenderedPages()
        self.drain, self.abandon, self.unready = self.engine.drain, self.engine.drain_time.abandon, self.engine.unready

        # 3. The rules of access. With frontends, these have them.
        self._regions = SharedMemory(prefix=settings.shared_memory_prefix) if settings.allow_shared_memory else None
        forget = self._regions.forget if self._regions is not None else lambda _: None
        self._access_control = (
            AccessControl(Path(settings.access_file), self.listener, self.engine.weigh_caller, forget=forget)
            if settings.access_file and not settings.frontends
            else None
        )
        self.access = self._access_control.access if self._access_control is not None else None

        # 4. What protocols are served with; http_app.py makes those over HTTP.
        self.open_inference = OpenInference(
            self.repository,
            self._subscribers.statistics.document,
            self,
            self._regions,
            batching=self.engine.batching_options,
            pages=self.pages,
        )
        self.readers = ReadingProcesses(self.memory.room)

        # 5. The protocols over gRPC.
        self.reload: Reload | None = self.engine.reload_for_caller if models else None
        self.grpc = None if settings.frontends else GrpcServers(self, options)

    # --- life ---

    @property
    def grace_s(self) -> float:
        """Seconds for which the server still serves after it was told to end; 0 where it serves no model."""
        return self.settings.drain_grace_s if self.repository.catalog.serves else 0.0

    def begin_grace(self) -> None:
        """Not ready from now on, but serves as before; clients of gRPC are told to go elsewhere."""
        self.engine.begin_grace()
        if self.grpc is not None:
            self.grpc.begin_grace()

    async def end_grace(self) -> None:
        """Returns when all clients of gRPC know of the end, and none can connect: the drain rejects no call."""
        if self.grpc is not None:
            await self.grpc.end_grace()

    async def start(self) -> None:
        """Start loading, and serve gRPC at once or, with wait_for_models, after loading."""
        self._subscribers.metrics.loop_lag.start()
        self.first_lines.begin()
        if self._access_control is not None:
            self._access_control.start()
        if self.tls is not None:
            self._following_tls = asyncio.create_task(self.tls.follow(), name="files of TLS")
        self._starting = asyncio.create_task(self._start_engine(), name="start")
        if self.settings.wait_for_models:
            drain = asyncio.create_task(self.engine.draining.wait())
            await asyncio.wait({self._starting, drain}, return_when=asyncio.FIRST_COMPLETED)
            drain.cancel()
            if self.failure:
                return
        try:
            if self.grpc is not None:
                await self.grpc.start()
        except OSError as error:
            self.failure = self.failure or f"Ferry could not start: {error}"
            logger.error("%s", self.failure)

    async def _start_engine(self) -> None:
        try:
            await self.engine.start()
            tell_largest_bodies(self.memory.room, self.settings.max_body_bytes)
        except ServingError as error:
            self.failure = f"Failed to start server. Error: {error}"
            logger.error("%s", self.failure)
        except Exception as error:
            if self.failure:  # told already: what fails while the server ends buries the reason
                return
            logger.exception("Ferry could not start")
            self.failure = f"Ferry could not start: {error}"

    async def stop(self) -> None:
        drained = await self.drain() and not self.engine.drain_time.abandoned
        self.readers.close()
        self._subscribers.metrics.loop_lag.stop()
        if self._following_tls is not None:
            self._following_tls.cancel()
        if self.grpc is not None:
            await self.grpc.stop(CLOSE_TIMEOUT_S if drained else 0)
        started = self._starting is None or self._starting.done()
        if self._starting is not None:
            self._starting.cancel()
        if self._regions is not None:
            self._regions.close()
        if self._access_control is not None:
            await self._access_control.close()
        await self._subscribers.close()
        self.stopped = await self.engine.close(drained and started)

    # --- health ---

    def dead(self) -> list[str]:
        return [*filter(None, [self.failure]), *self.engine.dead()]

    def problems(self) -> list[str]:
        return [problem.text for problem in self.repository.problems()]

    async def summary(self, encoding: str | None = None) -> Page:
        """The page /health."""
        return await self.pages.ask(("summary", encoding), partial(self._json_page, self._summary, encoding))

    def _summary(self) -> dict[str, Any]:
        facts = self._subscribers.facts
        unready = [*self.dead(), *self.unready()]
        programs = self.engine.compiled_programs()
        return {
            "status": "ready" if not unready else "not ready",
            "reasons": unready,
            "problems": self.problems(),
            "ferry": __version__,
            "uptime_s": round(time.monotonic() - self._started_s, 1),
            "runtime": self.settings.runtime,
            "devices": list(self.engine.devices),
            "queue": {"rows": self.engine.queue_rows(), "max_rows": self.settings.max_queue_size or None},
            "batch_sizes": list(self.engine.sizes.allowed),
            "largest_bodies": self.memory.room.told() or None,
            "models": {
                name: [
                    {"version": status.version, "state": status.state, "error": status.error_message}
                    for status in self.repository.statuses(name)
                ]
                for name in self.repository.names()
            },
            "replicas": dict(facts.devices),
            "notes": dict(facts.notes),
            "variants": dict(facts.variants),
            "compiled_programs": programs and {**programs._asdict(), "consequence": programs.consequence},
            "row_independence": {version: dict(rows) for version, rows in facts.rows.items()},
            "mixed_shapes": facts.mixed_shapes(),
            "improving": dict(facts.improving),
        }

    # --- batching ---

    async def explain_batching(self, model: str, encoding: str | None = None) -> Page:
        """The explanation of how a model is batched. Raises ModelNotFound, ModelNotReady."""
        self.engine.batching_options(model)  # raises: no stranger's name is a key
        render = partial(self._json_page, partial(self._explanation, model), encoding)
        return await self.pages.ask(("batching", model, encoding), render, counts=True)

    def _explanation(self, model: str) -> dict[str, Any]:
        options = self.engine.batching_options(model)
        versions = sorted(self.repository.catalog.available(model), reverse=True)
        models = [self.repository.resolve(model, version) for version in versions]
        explanation = self._subscribers.explanations.explain(model, options, models, self.engine.pipelines())
        return explanation.model_dump(mode="json")

    def _json_page(self, document: Callable[[], dict[str, Any]], encoding: str | None) -> Pieces[Page]:
        text = document()
        yield
        return (yield from compressed_page(dumps(text), "application/json", encoding))

    async def tune_batching(self, model: str, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Changes options from the next batch on. Returns all options that are then in force.

        Raises:
            ModelNotFound, ModelNotReady: there is no such model.
            InvalidRequest: a value does not fit the model; nothing was changed.
        """
        self.engine.tune(model, self.engine.batching_options(model).changed(changes))
        self._subscribers.explanations.reset(model)
        return self.engine.batching_options(model).as_dict()

    # --- metrics ---

    def _state(self) -> ServerState:
        engine, memory = self.engine, self.memory
        models = [each.model for each in self.repository.catalog.servables() if each.model is not None]
        batched = [each for each in models if isinstance(each, Model)]
        batcher = engine.batcher
        return ServerState(
            ready=not (self.dead() or self.unready()),
            states={
                (each.name, each.version): each.status.state
                for each in self.repository.catalog.servables()
                if not each.ended
            },
            problems=self.repository.problems(),
            in_flight={(each.name, each.version): each.open_requests for each in batched},
            signatures={(each.name, each.version): tuple(each.signatures) for each in batched},
            queue_rows=engine.queue_rows(),
            waiting=batcher.waiting() if batcher is not None else {},
            slots=batcher.slots() if batcher is not None else {},
            busy_s=batcher.busy_s() if batcher is not None else {},
            device_memory=engine.device_memory(),
            connections=self._connections(),
            held={"queue": engine.queue_bytes(), "bodies": memory.bodies, "replies": memory.unread},
            kept_row_bytes=engine.kept_row_bytes(),
            dropped_lines=dropped_lines(),
            programs=engine.compiled_programs(),
            tls=self.tls.state if self.tls is not None else None,
        )

    def _connections(self) -> Mapping[str, int]:
        """The number of open connections by transport, where it is known."""
        http = self.http_connections() if self.http_connections is not None else None
        found = {"http": http, "grpc": self.grpc.open_connections() if self.grpc is not None else None}
        return {name: number for name, number in found.items() if number is not None}

    async def metrics(self, accepted: str = "", encoding: str | None = None) -> Page:
        """The metrics page in the form that an Accept header asks for."""
        content_type = self._subscribers.metrics_type(accepted)
        render = partial(self._metrics, content_type, encoding)
        return await self.pages.ask(("metrics", content_type, encoding), render, counts=True)

    def _metrics(self, content_type: str, encoding: str | None) -> Pieces[Page]:
        page = yield from self._subscribers.metrics_page(content_type)
        return (yield from compressed_page(page, content_type, encoding))

    def __repr__(self) -> str:
        state = "stopped" if self.stopped else "; ".join([*self.dead(), *self.unready()]) or "ready"
        return f"<Server, {state}>"


def _options(settings: Settings) -> GrpcOptions:
    """The options of gRPC. With frontends, which serve TLS, this process only tells how its files are.

    Raises:
        TlsError: a file of TLS cannot be used, and there are no frontends.
    """
    try:
        return grpc_options(settings)
    except TlsError as error:
        if not settings.frontends:
            raise
        logger.error("%s; frontends serve on with what they read before", error)
        return grpc_options(settings.model_copy(update={"tls_certificate": ""}))
