"""The models of a folder or of a list, as a server would serve them, examined without being loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING, NamedTuple, cast

from app.config.settings import Settings
from app.core.errors import InferenceFailed, InvalidRequest, ModelNotFound, ServingError
from app.core.events import ignore
from app.core.inference import ModelSignature
from app.core.versions import ModelProblem, ProblemKind
from app.loading.settings_of_model import caller_signatures
from app.pipelines.compilation import compile_pipeline, models_of
from app.pipelines.document import parse
from app.pipelines.plan import Plan
from app.pipelines.references import ModelReference, PipelineInvalid
from app.pipelines.served_pipelines import lacking, not_a_model
from app.repository.catalog import Catalog
from app.repository.disk.disk_layout import PIPELINE_FILE, DiskLayout, graph_beside_pipeline, missing_graph, walk
from app.repository.disk.examination import nothing_missing
from app.repository.model_config import ModelConfig
from app.repository.servable import Servable
from app.runtime import missing_part_of, offline_signatures_of

if TYPE_CHECKING:
    from app.pipelines.pipeline_model import PipelineModel

#: The most models, versions or labels that a fault names. Chosen.
_MOST_NAMED = 10


class ModelFault(NamedTuple):
    """A fault that a server would find in a folder or file."""

    path: Path
    text: str


@dataclass(frozen=True, slots=True)
class OfflineModel:
    """A version that could be served. `signatures` is None for a pipeline."""

    path: Path
    signatures: Mapping[str, ModelSignature] | None


#: Examines a version, by its model's name and its folder. Raises ServingError, OSError: it cannot be served.
Look = Callable[[str, Path], OfflineModel]


def looking(settings: Settings) -> Look:
    """The examination of a version by the functions of the runtime that the settings name."""
    missing_part = missing_part_of(settings.runtime) or nothing_missing
    read = offline_signatures_of(settings.runtime)

    def look(name: str, path: Path) -> OfflineModel:
        # 1. Files that may be read at all: a pipe would keep its reader waiting.
        for file, stat in walk(path):
            if not (S_ISREG(stat.st_mode) or S_ISDIR(stat.st_mode)):
                raise InferenceFailed(f"{file.relative_to(path)} is no regular file")
        if (path / PIPELINE_FILE).is_file():
            if fault := graph_beside_pipeline(path):
                raise InferenceFailed(fault)
            return OfflineModel(path, None)

        # 2. Whether they are whole.
        if missing := missing_graph(path) or missing_part(path):
            raise InferenceFailed(missing)

        # 3. The signatures.
        signatures = read(path, settings.allowed_operations, settings.operation_libraries) if read is not None else {}
        return OfflineModel(path, caller_signatures(signatures, name, settings))

    return look


class OfflineModels:
    """The models of a layout, each examined when it is first asked for.

    Args:
        listed: the layout is that of a list, which says which versions are served and what their labels are. Otherwise
            any version that is there may be served, and a label may be that of the newest.
        where: the folder or list, by its name.

    Attributes:
        notes: the assumptions that were made.
        steps: the folders of the versions that steps of checked pipelines use.
    """

    def __init__(self, layout: DiskLayout, look: Look, *, listed: bool, where: str = "the list of models") -> None:
        self.layout = layout
        self.notes: dict[str, None] = {}
        self.steps: dict[ModelReference, Path] = {}
        self._look = look
        self._listed = listed
        self._where = where
        self._faults: dict[str, list[ModelFault]] = {}
        self._served: dict[str, set[int]] = {}
        self._catalog = Catalog()
        self._catalog.complete = True
        self._catalog.labels = {name: config.labels for name, config in layout.configs.items()}

    def faults(self, name: str) -> list[ModelFault]:
        """The reasons why versions of a model that should be served would not be."""
        self._see(name)
        return self._faults[name]

    def served(self, name: str) -> Mapping[int, OfflineModel]:
        """The versions of a model that would be served."""
        self._see(name)
        servables = self._catalog.models.get(name, {})
        return {number: cast("OfflineModel", servables[number].model) for number in self._served[name]}

    def check(self, text: bytes) -> Plan:
        """The plan of a pipeline's text. Raises PipelineInvalid: the text is wrong, or does not fit these models."""
        content = parse(text)
        models = models_of(content)
        if reasons := lacking(models, self._find):
            told = [self._why_not_found(reference, error) for reference, error in reasons.items()]
            steps = [models[reference] for reference in reasons]
            raise PipelineInvalid(*[f"step {step!r}: {why}" for step, why in zip(steps, told, strict=True)])
        self.steps |= {reference: self._find(*reference).path for reference in models}
        return compile_pipeline(content, self._signatures)

    # --- models by reference ---

    def _signatures(self, reference: ModelReference) -> Mapping[str, ModelSignature]:
        signatures = self._find(*reference).signatures
        if signatures is None:
            raise not_a_model(reference)
        return signatures

    def _find(self, name: str, version: int | None = None, label: str | None = None) -> OfflineModel:
        """The model that a step names. Raises ServingError, as a server's catalog does."""
        self._see(name)
        if not self._listed and label is not None and self.served(name):
            self._note(
                f"{name}:{label} is taken for the newest version: labels come from the model config file of "
                "ferry-model-server"
            )
            label = None
        if not self._listed and version is not None and version not in self.served(name):
            self._see_version(name, version)
        return cast("OfflineModel", self._catalog.resolve(name, version, label))

    def _see_version(self, name: str, version: int) -> None:
        """Examines a version that is served only if a model config file names it."""
        path = self.layout.models.get(name, {}).get(version)
        if path is not None and not self._why_not(name, version, path):
            self._note(
                f"{name}:{version} is not the newest version: the model config file of ferry-model-server has to say "
                "that it is served"
            )

    def _why_not_found(self, reference: ModelReference, error: ServingError) -> str:
        name, version, label = reference
        if name not in self.layout.configs and name not in self.layout.unreadable:
            others = (repr(each) for each in sorted(self.layout.configs) if not self._is_pipeline(each))
            return f"there is no model {name!r} in {self._where}, {_only(others)}"
        if isinstance(error, ModelNotFound) and version is not None:
            there = self.served(name) if self._listed else self.layout.models.get(name, {})
            return f"model {name!r} has no version {version}, {_only(map(str, sorted(there)))}"
        if isinstance(error, InvalidRequest) and label is not None:
            labels = self._catalog.labels.get(name, {})
            return f"model {name!r} has no label {label!r}, {_only(map(repr, sorted(labels)))}"
        return f"it waits for {reference} ({error})"

    def _is_pipeline(self, name: str) -> bool:
        """True if its newest version is a pipeline, which no step can use."""
        versions = self.layout.models.get(name, {})
        return bool(versions) and (versions[max(versions)] / PIPELINE_FILE).is_file()

    # --- looking ---

    def _see(self, name: str) -> None:
        """Finds out which versions would be served, as the reconciler does: if one fails, the next one may serve."""
        if name in self._faults:
            return

        # 1. A model that is not there, or cannot be read.
        faults, served = self._faults[name], self._served[name] = list[ModelFault](), set[int]()
        config = self.layout.configs.get(name)
        if name in self.layout.unreadable:
            self._see_unreadable(name, config)
            return
        if config is None:
            return

        # 2. Versions with missing files.
        folders, incomplete = dict(self.layout.models.get(name, {})), self.layout.incomplete.get(name, {})
        for version in config.policy(folders.keys() | incomplete.keys()) & incomplete.keys():
            self._hold(name, version, incomplete[version])
            faults.append(ModelFault(config.base_path / str(version), incomplete[version]))

        # 3. Versions that the policy wants, until it finds no more.
        while missing := config.policy(folders.keys()) - served:
            version = max(missing)
            if reason := self._why_not(name, version, folders[version]):
                faults.append(ModelFault(folders.pop(version), reason))
            else:
                served.add(version)

    def _see_unreadable(self, name: str, config: ModelConfig | None) -> None:
        """Records a model whose folder cannot be read; without a list it may be no model at all."""
        told = {each.path: each.reason for each in self.layout.ignored}
        path = (
            config.base_path
            if config is not None
            else min([each for each in told if each.name == name], key=lambda each: len(each.parts))
        )
        self._hold(name, None, told[path])
        self._faults[name].append(ModelFault(path, told[path]))

    def _why_not(self, name: str, version: int, path: Path) -> str:
        """The reason why a version cannot be served; empty if it can, and then steps find it."""
        try:
            model = self._look(name, path)
        except (ServingError, OSError) as error:
            self._hold(name, version, str(error))
            return str(error)
        servable = Servable(name, version, ignore)
        servable.model = cast("PipelineModel", model)  # pipelines ask for signatures only
        self._catalog.models.setdefault(name, {})[version] = servable
        return ""

    def _hold(self, name: str, version: int | None, reason: str) -> None:
        """Records why a version cannot be served, for steps that name it. `version` None: no version is known."""
        text = f"Model {name}{'' if version is None else f' version {version}'} is not loaded: {reason}"
        number = -1 if version is None else version
        self._catalog.held.setdefault(name, {})[number] = ModelProblem(name, version, ProblemKind.FAILED, text)

    def _note(self, text: str) -> None:
        self.notes[text] = None


def _only(names: Iterable[str]) -> str:
    """The first few of the names that there are, so that the line stays readable."""
    first = list(islice(names, _MOST_NAMED + 1))
    more = ", ..." if len(first) > _MOST_NAMED else ""
    return f"only {', '.join(first[:_MOST_NAMED])}{more}" if first else "and no other"
