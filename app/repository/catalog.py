"""The catalog: the versions of all models, and the choice of the version for a call."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from app.core.errors import InvalidRequest, ModelNotFound, ModelNotReady
from app.core.versions import ModelProblem, ProblemKind, VersionState, VersionStatus
from app.repository.servable import Servable

if TYPE_CHECKING:
    from app.model import Model
    from app.pipelines.pipeline_model import PipelineModel


#: The most models that no folder or list names any more and whose statuses are kept, for people to read. Chosen.
_ENDED_KEPT = 64


class Catalog:
    """The servables by model name and version, and the labels of versions by model name.

    The attributes are written from outside: by ModelRepository and Reconciler, read_snapshot and OfflineModels.

    complete: the first poll of the disk has ended; before that an unknown model may still appear.
    held: the versions on disk that should be loaded and cannot, or not yet; one that is served from its earlier files
        may be among them.
    """

    def __init__(self, default_model: str = "") -> None:
        self.default_model = default_model
        self.models: dict[str, dict[int, Servable]] = {}
        self.labels: Mapping[str, Mapping[str, int]] = {}
        self.held: dict[str, dict[int, ModelProblem]] = {}
        self.complete = False

    def resolve(self, name: str, version: int | None = None, label: str | None = None) -> Model | PipelineModel:
        """The model to call: the newest available version, or the version with this number or label.

        Await nothing between this call and the call of the model: a swap in between may unload the model.

        Raises:
            InvalidRequest: no version has that label.
            ModelNotFound: no such model or version.
            ModelNotReady: the version is loading, held or failed to load, or the first poll of the disk has not ended.
        """
        # 1. A label stands for a version.
        if label is not None:
            version = self.labels.get(name, {}).get(label)
            if version is None:
                self._check_complete()
                raise InvalidRequest(f"Unrecognized servable version label: {label}")

        # 2. The newest of the versions asked for that can be called.
        servables = self.models.get(name, {})
        if version is not None:
            servables = {version: servables[version]} if version in servables else {}
        newest: Servable | None = None
        for servable in servables.values():
            if servable.model is not None and (newest is None or servable.version > newest.version):
                newest = servable
        if newest is not None and newest.model is not None:
            return newest.model

        # 3. None can: the reason, if one is loading, failed or held.
        held = [each for each in self.held.get(name, {}).values() if version in {None, each.version}]
        if reason := _why_unavailable(name, servables.values(), held):
            raise ModelNotReady(reason, is_pipeline=any(each.kind is ProblemKind.WAITING for each in held))

        # 4. None is known. Until the first poll has ended one may still appear.
        self._check_complete()
        wanted = f"Latest({name})" if version is None else f"Specific({name}, {version})"
        raise ModelNotFound(f"Servable not found for request: {wanted}")

    def names(self) -> list[str]:
        """The names of models that are served, loading, held, or failed to load and are still on disk."""
        living = {name for name, each in self.models.items() if not all(s.ended for s in each.values())}
        return sorted(living | {name for name, held in self.held.items() if held})

    def default_name(self) -> str:
        """The model behind the short routes.

        Raises:
            InvalidRequest: there are several models and default_model is not set.
            ModelNotReady: there is no model yet.
        """
        if self.default_model:
            return self.default_model
        names = self.names()
        if not names:
            raise ModelNotReady("No model is loaded yet")
        if len(names) > 1:
            raise InvalidRequest(f"Several models are served: {', '.join(names)}. Name one, or set default_model")
        return names[0]

    @property
    def serves(self) -> bool:
        """Whether any model can be called."""
        return any(self.available(name) for name in self.models)

    def available(self, name: str) -> set[int]:
        """The versions that can be called."""
        return {version for version, servable in self.models.get(name, {}).items() if servable.model}

    def statuses(self, name: str, version: int | None = None) -> Sequence[VersionStatus]:
        """Statuses, newest version first, with the newest few versions that ended.

        Raises:
            ModelNotFound: no such model, or no such version of it.
            ModelNotReady: the models have not all been found yet.
        """
        held = self.held.get(name, {}).items()
        statuses = {number: VersionStatus(number, VersionState.START, each.text) for number, each in held}
        for servable in self.models.get(name, {}).values():
            if not (servable.ended and servable.version in statuses):
                statuses[servable.version] = servable.status
        if not statuses:
            self._check_complete()
            raise ModelNotFound(f"Could not find any versions of model {name}")
        if version is None:
            return [statuses[number] for number in sorted(statuses, reverse=True)]
        if version not in statuses:
            raise ModelNotFound(f"Could not find version {version} of model {name}")
        return [statuses[version]]

    def why_unavailable(self, name: str) -> str:
        """The reason why no version of a model can be called; empty if one can, or if none loads, failed or is held."""
        if self.available(name):
            return ""
        return _why_unavailable(name, self.models.get(name, {}).values(), self.held.get(name, {}).values())

    def why_failed(self, name: str) -> str:
        """The reason why no version of a model could be loaded; empty if one can be called, or none was tried yet.

        A version whose files do not change any more, with a part missing or cut short, counts as tried. A folder
        without a graph does not: a graph may come.
        """
        if self.available(name):
            return ""
        broken = [each for each in self.held.get(name, {}).values() if each.kind is ProblemKind.INCOMPLETE]
        return _why_unavailable(name, self.models.get(name, {}).values(), broken)

    def lacks_memory(self, name: str) -> bool:
        """Whether no version of a model can be called, and one is not loaded for want of memory."""
        held = self.held.get(name, {}).values()
        return not self.available(name) and any(each.kind is ProblemKind.NO_MEMORY for each in held)

    def forget_ended(self, listed: Collection[str]) -> None:
        """Drop models that are not `listed` and have no living version, but for the last ones that were found."""
        gone = [
            name
            for name, each in self.models.items()
            if name not in listed and not self.held.get(name) and all(servable.ended for servable in each.values())
        ]
        for name in gone[:-_ENDED_KEPT]:
            del self.models[name]
            self.held.pop(name, None)

    def servables(self) -> list[Servable]:
        return [servable for servables in self.models.values() for servable in servables.values()]

    def __repr__(self) -> str:
        return f"<Catalog{'' if self.complete else ', incomplete'}: {self.servables()}>"

    def _check_complete(self) -> None:
        if not self.complete:
            raise ModelNotReady("Models are still loading")


def _why_unavailable(name: str, servables: Collection[Servable], held: Collection[ModelProblem]) -> str:
    if any(servable.loading for servable in servables):
        return f"Model {name} is still loading"
    failed = [servable for servable in servables if servable.failed_on is not None]
    if failed:
        return max(failed, key=lambda servable: servable.version).why_failed
    return max(held, key=lambda each: each.version or 0).text if held else ""
