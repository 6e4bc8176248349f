"""What a frontend serves HTTP with: the protocols of Server before the engine of another process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.config.settings import Settings
from app.core.interfaces import ServedRepository
from app.frontends.frontend.remote_engine import RemoteEngine
from app.protocols.open_inference.api import OpenInference
from app.protocols.open_inference.rest import OpenInferenceRest
from app.protocols.tensorflow_serving.rest import TensorFlowRest
from app.transports.http.replies import HttpLimits


class _Elsewhere:
    """What was counted, the engine knows."""

    def document(self, model: str, version: int) -> dict[str, Any]:
        raise NotImplementedError(f"Nothing is counted here, not of {model}/{version} either")


class _OpenInference(OpenInference):
    """Statistics are the engine's."""

    def __init__(self, engine: RemoteEngine, health: Frontend) -> None:
        super().__init__(engine.repository, _Elsewhere(), health)
        self._engine = engine

    async def model_statistics(self, name: str = "", version: str = "") -> dict[str, Any]:
        document: dict[str, Any] = await self._engine.query("statistics", name, version)
        return document


class Frontend:
    """Made anywhere, started on the event loop.

    Args:
        engine: the socket where the engine is found.
    """

    def __init__(self, settings: Settings, engine: Path) -> None:
        self.settings = settings
        self.failure = ""
        self.stopped = False
        self.engine = RemoteEngine(engine, settings.stuck_after_s)
        limits = HttpLimits(settings.max_body_bytes, settings.request_timeout_ms)
        draining = self.engine.draining
        self.tensorflow_rest = TensorFlowRest(self.repository, self.engine.count, limits, draining=draining)
        self.open_inference_rest = OpenInferenceRest(_OpenInference(self.engine, self), self.engine.count, limits)

    @property
    def repository(self) -> ServedRepository:
        return self.engine.repository

    # --- life ---

    async def start(self) -> None:
        """Returns at once, unless it is to wait for the models."""
        self.engine.start()
        if self.settings.wait_for_models:
            await self.engine.there()

    async def drain(self) -> bool:
        """Waits until everything accepted is answered; False where the time for that ran out."""
        return await self.engine.drain(self.settings.drain_timeout_s)

    async def stop(self) -> None:
        await self.drain()
        await self.engine.close()
        self.stopped = True

    # --- health ---

    def dead(self) -> list[str]:
        """Reasons to restart."""
        return self.engine.dead()

    def unready(self) -> list[str]:
        """Reasons to send no requests here now."""
        return self.engine.unready()

    async def summary(self) -> dict[str, Any]:
        """What the engine shows, for it speaks for all; without one, that there is none."""
        reasons = [*self.dead(), *self.unready()]
        if not self.engine.is_there:
            return {"status": "not ready", "reasons": reasons}
        summary: dict[str, Any] = await self.engine.query("summary")
        return summary

    async def explain_batching(self, model: str) -> Mapping[str, Any]:
        """What the engine says. Raises ModelNotFound, ModelNotReady."""
        document: Mapping[str, Any] = await self.engine.query("explain batching", model)
        return document

    async def tune_batching(self, model: str, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        """For all frontends. Raises ModelNotFound, ModelNotReady, InvalidRequest."""
        options: Mapping[str, Any] = await self.engine.query("tune batching", model, changes)
        return options

    async def metrics(self) -> tuple[bytes, str]:
        """The engine's page: it counts for all frontends. Raises ModelNotReady where there is no engine."""
        page, content_type = await self.engine.query("metrics")
        return page, content_type
