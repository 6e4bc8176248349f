"""The engine's repository, as protocols in a frontend use it: a copy of its catalog."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from app.core.interfaces import ServedModel
from app.core.versions import VersionStatus
from app.frontends.channel.catalog_snapshot import CatalogSnapshot, read_description, read_snapshot
from app.frontends.frontend.remote_model import RemoteModel, RequestChannel
from app.repository.catalog import Catalog


class RemoteRepository:
    """The catalog of the last snapshot; an incomplete catalog before the first.

    Args:
        query: sends a query to the engine.
    """

    def __init__(self, query: Callable[..., Awaitable[Any]]) -> None:
        self._query = query
        self._models: dict[int, RemoteModel] = {}
        self._catalog = Catalog()
        self._known: Sequence[str] = ()

    def apply(self, channel: RequestChannel, snapshot: CatalogSnapshot) -> None:
        """Take over a snapshot. A model that stays is the same object as before."""
        models: dict[int, RemoteModel] = {}

        def model_of(number: int, name: str, version: int) -> RemoteModel:
            model = self._models.get(number)
            if model is None:
                sizes, signatures = read_description(snapshot.described[number])
                model = RemoteModel(channel, number, name, version, sizes=sizes, signatures=signatures)
            model.alone = name in snapshot.alone
            models[number] = model
            return model

        self._catalog = read_snapshot(snapshot, model_of)
        self._known = snapshot.known
        self._models = models

    def clear(self) -> None:
        """The engine is gone, and its models with it."""
        self._catalog = Catalog()
        self._known = ()
        self._models = {}

    # --- what protocols call; see ModelRepository ---

    def resolve(self, name: str, version: int | None = None, label: str | None = None) -> ServedModel:
        return self._catalog.resolve(name, version, label)

    def names(self) -> list[str]:
        return self._catalog.names()

    def known_names(self) -> list[str]:
        return list(self._known)

    def statuses(self, name: str, version: int | None = None) -> Sequence[VersionStatus]:
        return self._catalog.statuses(name, version)

    def default_name(self) -> str:
        return self._catalog.default_name()

    async def load(self, name: str) -> None:
        await self._query("load", name)

    async def unload(self, name: str) -> None:
        await self._query("unload", name)
