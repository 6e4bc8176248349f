"""Which versions of which models there are, and which of them answers a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from app.errors import InvalidRequest, ModelNotFound, ModelNotReady, ServingError
from app.repository.servable import Servable
from app.repository.versions import VersionStatus

if TYPE_CHECKING:
    from app.model import Model


class Catalog:
    """The servables by model name and version. Whoever keeps it up to date writes to `models`."""

    def __init__(self) -> None:
        self.models: dict[str, dict[int, Servable]] = {}

    def resolve(self, name: str, version: int | None = None, label: str | None = None) -> Model:
        """The model to call: the newest available, or the version asked for.

        Raises:
            InvalidRequest: no version carries that label.
            ModelNotFound: no such model or version.
            ModelNotReady: it is still loading, or failed to load.
        """
        if label is not None:
            raise InvalidRequest(f"Unrecognized servable version label: {label}")
        servables = self.models.get(name, {})
        if version is not None:
            servables = {version: servables[version]} if version in servables else {}
        newest = max((number for number, servable in servables.items() if servable.model), default=None)
        model = None if newest is None else servables[newest].model
        if model is None:
            raise _unavailable(name, version, servables)
        return model

    def names(self) -> list[str]:
        """Every model that is served, is on its way, or failed and is still on disk."""
        return sorted(name for name, each in self.models.items() if not all(s.ended for s in each.values()))

    def statuses(self, name: str, version: int | None = None) -> Sequence[VersionStatus]:
        """Newest first; the last few ended ones are still told.

        Raises:
            ModelNotFound: no such model, or no such version of it.
        """
        servables = self.models.get(name)
        if not servables:
            raise ModelNotFound(f"Could not find any versions of model {name}")
        if version is None:
            return [servables[number].status for number in sorted(servables, reverse=True)]
        if version not in servables:
            raise ModelNotFound(f"Could not find version {version} of model {name}")
        return [servables[version].status]

    def why_unavailable(self, name: str) -> str:
        """Why no version of a model that is on disk can be called; empty where one can."""
        servables = self.models.get(name, {})
        if any(servable.model for servable in servables.values()):
            return ""
        return str(_unavailable(name, None, servables)) if servables else f"Model {name} has no complete version folder"

    def servables(self) -> list[Servable]:
        return [servable for servables in self.models.values() for servable in servables.values()]


def _unavailable(name: str, version: int | None, servables: Mapping[int, Servable]) -> ServingError:
    """Why none of these servables of the model can be called."""
    if any(servable.loading for servable in servables.values()):
        return ModelNotReady(f"Model {name} is still loading")
    failed = [servable for servable in servables.values() if servable.failed_on is not None]
    if failed:
        newest = max(failed, key=lambda servable: servable.version)
        return ModelNotReady(f"Model {name} version {newest.version} failed to load: {newest.error}")
    wanted = f"Latest({name})" if version is None else f"Specific({name}, {version})"
    return ModelNotFound(f"Servable not found for request: {wanted}")
