"""The engine's repository, as protocols in a frontend use it: a copy of its catalog."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from app.core.interfaces import NO_OVERRIDES, LoadOverrides
from app.frontends.channel.catalog_snapshot import CatalogSnapshot, read_snapshot
from app.frontends.frontend.remote_model import RemoteModel, RequestChannel
from app.repository.catalog import Catalog


class RemoteRepository(Catalog):
    """The catalog of the last snapshot; an incomplete one before the first. `query` asks the engine."""

    def __init__(self, query: Callable[..., Awaitable[Any]]) -> None:
        super().__init__()
        self._query = query
        self._models: dict[int, RemoteModel] = {}
        self._known: Sequence[str] = ()

    def apply(self, channel: RequestChannel, snapshot: CatalogSnapshot) -> None:
        """Take over a snapshot. A model that stays is the same object as before."""
        models: dict[int, RemoteModel] = {}

        def model_of(number: int, name: str, version: int) -> RemoteModel:
            model, described = self._models.get(number), snapshot.described[number]
            if model is None:
                model = RemoteModel(channel, number, name, version)
            if described != model.described:  # such as by its rows, which were found to see each other
                model.describe(described)
            models[number] = model
            return model

        read_snapshot(self, snapshot, model_of)
        self._known = snapshot.known
        self._models = models

    def clear(self) -> None:
        """The engine is gone, and its models with it."""
        super().__init__()
        self._known = ()
        self._models = {}

    # --- what protocols call beside a catalog; see ModelRepository ---

    def known_names(self) -> list[str]:
        return list(self._known)

    async def load(self, name: str, overrides: LoadOverrides = NO_OVERRIDES) -> None:
        await self._query("load", name, *overrides)

    async def unload(self, name: str) -> None:
        await self._query("unload", name)
