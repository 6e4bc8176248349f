"""What `ferry check` finds: which versions it is asked about, and what a server would say of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from app.cli.offline_models import Look, ModelFault, OfflineModel, OfflineModels, looking
from app.config.settings import Settings
from app.config.sources import SettingsError
from app.core.errors import InvalidRequest, ServingError
from app.core.inference import ModelSignature
from app.pipelines.plan import Plan
from app.pipelines.references import PipelineInvalid
from app.repository.disk.disk_layout import (
    MODEL_FILES,
    PIPELINE_FILE,
    missing_graph,
    read_pipeline,
    scan_model,
    version_number,
)
from app.repository.model_config import ModelConfig
from app.repository.model_list_checks import check_list, check_platforms
from app.repository.model_server_config import read_model_configs
from app.repository.model_sources import ModelList, ModelsFolder


class Checked(NamedTuple):
    """A version in which nothing is wrong: a pipeline's plan, or a model's signatures. `title` names it."""

    title: str
    path: Path
    content: Plan | Mapping[str, ModelSignature]


@dataclass(slots=True)
class Findings:
    """What was found. `notes`: what was assumed, or left out."""

    checked: list[Checked] = field(default_factory=list)
    faults: list[ModelFault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class _Target(NamedTuple):
    """What is to be checked: a version, by its folder, or a model, by its name, or all models of a folder.

    models: the folder that holds the model; None if nothing says so.
    """

    models: Path | None
    name: str = ""
    version: Path | None = None


def check_folder(folder: Path, settings: Settings, models: Path | None = None, config: Path | None = None) -> Findings:
    """Check what is in `folder`: a models folder, the folder of a model or of a version, or a pipeline's file.

    Args:
        models: where the models of steps are, if not beside it.
        config: the file of a ModelServerConfig, which says which models are served.

    Raises:
        SettingsError: there is no such folder or file, or the config is wrong.
        OSError: a folder cannot be read.
    """
    target, look = _target(folder), looking(settings)

    # 1. The models that are there: those that are asked about, and those of steps.
    if config is not None:
        if models is not None:
            raise SettingsError("--models and --model-config-file should not be given both: the file names folders")
        own = others = OfflineModels(ModelList(_configs(config)).scan(), look, listed=True)
    else:
        if models is not None and not models.is_dir():
            raise SettingsError(f"--models is {str(models)!r}, but should be a folder")
        own = _models_in(target.models or settings.models.absolute(), look)
        others = own if models is None else _models_in(models.absolute(), look)

    # 2. What is asked about.
    check = _Check(look, own, others)
    if target.version is not None:
        check.version(target.name, target.version, is_draft=models is not None)
    else:
        check.models(target, listed=config is not None)
    check.findings.notes += others.notes
    return check.findings


def _target(given: Path) -> _Target:
    path = Path(os.path.abspath(given))
    if path.is_file():
        if path.name != PIPELINE_FILE:
            raise SettingsError(f"{given} should be a folder, or a file of the name {PIPELINE_FILE}")
        path = path.parent
    elif not path.is_dir():
        raise SettingsError(f"there is no folder {given}")
    is_numbered = version_number(path.name) is not None
    a_version = _Target(path.parent.parent if is_numbered else None, path.parent.name if is_numbered else "", path)
    if not missing_graph(path):
        return a_version
    model = scan_model(path)
    holds_models = any(ModelsFolder(path).scan().models.values())
    if model.versions or not (model.empty or holds_models):
        return _Target(path.parent, path.name)
    if holds_models:
        return _Target(path)
    return a_version if is_numbered else _Target(path)


def _models_in(folder: Path, look: Look) -> OfflineModels:
    try:
        return OfflineModels(ModelsFolder(folder).scan(), look, listed=False, where=str(folder))
    except FileNotFoundError:
        raise SettingsError(f"there is no models folder {folder}: --models names one") from None


def _configs(file: Path) -> Sequence[ModelConfig]:
    try:
        configs = read_model_configs(file, at_start=True)
        check_list(configs)
        check_platforms({}, configs)
    except InvalidRequest as error:
        raise SettingsError(f"--model-config-file {file}: {error}") from None
    except OSError as error:
        raise SettingsError(f"--model-config-file {file} cannot be read: {error.strerror or error}") from None
    return configs


class _Check:
    """Args: own: the models that are asked about; others: those of steps."""

    def __init__(self, look: Look, own: OfflineModels, others: OfflineModels) -> None:
        self.findings = Findings()
        self._look = look
        self._own = own
        self._others = others

    def models(self, target: _Target, *, listed: bool) -> None:
        """Those that would be served, of the target."""
        configs, folder = self._own.layout.configs, (target.models or Path()) / target.name
        if listed:
            names = [name for name, each in configs.items() if folder in {each.base_path, *each.base_path.parents}]
        else:
            known = configs.keys() | self._own.layout.unreadable
            names = [target.name] if target.name in known else [] if target.name else sorted(known)
        if not names:
            expected = f"<name>/<version>/{MODEL_FILES[0]}, or {PIPELINE_FILE} in its place"
            what = "the list of models names none in it" if listed else f"it holds no model, which is {expected}"
            self.findings.faults.append(ModelFault(folder, what))
        for name in names:
            self.findings.faults += self._own.faults(name)
            for number, model in sorted(self._own.served(name).items()):
                self._content(f"{name} version {number}", model)
        if not listed:
            self._note_ignored(folder)

    def version(self, name: str, path: Path, *, is_draft: bool) -> None:
        """Any version, whether it would be served or not. Args: is_draft: it is known to lie elsewhere."""
        if not name and not is_draft:
            self.findings.notes.append(f"{path.name} is not a version, a whole number: no server would find it here")
        title = f"{name} version {version_number(path.name)}" if name else path.name
        try:
            self._content(title, self._look(name or path.name, path))
        except (ServingError, OSError) as error:
            self.findings.faults.append(ModelFault(path, str(error)))

    def _content(self, title: str, model: OfflineModel) -> None:
        if model.signatures is not None:
            self.findings.checked.append(Checked(title, model.path, model.signatures))
            return
        file = model.path / PIPELINE_FILE
        try:
            self.findings.checked.append(Checked(title, file, self._others.check(read_pipeline(model.path))))
        except PipelineInvalid as invalid:
            self.findings.faults += [ModelFault(file, fault) for fault in invalid.faults]
        except OSError as error:
            self.findings.faults.append(ModelFault(file, f"it cannot be read: {error.strerror or error}"))

    def _note_ignored(self, folder: Path) -> None:
        """What a server would leave out, below this folder, and what is no fault."""
        told = {fault.path for fault in self.findings.faults}
        for ignored in sorted(self._own.layout.ignored, key=str):
            if folder in ignored.path.parents and ignored.path not in told:
                self.findings.notes.append(f"{ignored.path} is ignored: {ignored.reason}")
