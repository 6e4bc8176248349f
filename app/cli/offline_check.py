"""The findings of `ferry check`: the versions that it is asked about, and what a server would say of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from app.cli.offline_models import Look, ModelFault, OfflineModel, OfflineModels, looking
from app.cli.trials.model_trials import ModelTrials, Trial
from app.cli.trials.trial_messages import TrialVersion
from app.config.settings import Settings
from app.config.sources import SettingsError
from app.core.errors import InvalidRequest, ServingError
from app.core.inference import ModelSignature
from app.importing.version_folder import model_name
from app.model_files import MODEL_FILES, SAVED_MODEL_FILE, TFLITE_FILE
from app.pipelines.plan import Plan
from app.pipelines.references import ModelReference, PipelineInvalid
from app.repository.disk.disk_layout import (
    PIPELINE_FILE,
    missing_graph,
    read_pipeline,
    scan_model,
    version_number,
)
from app.repository.disk.importable import format_of, import_command
from app.repository.model_config import ModelConfig
from app.repository.model_list_checks import check_names_and_paths, check_platforms
from app.repository.model_server_config import read_model_configs
from app.repository.model_sources import ModelList, ModelsFolder


@dataclass(slots=True)
class Checked:
    """A version without faults: a pipeline's plan, or a model's signatures. `title` names it.

    found: the lines that a server would log of its signatures, once it was loaded.
    """

    title: str
    path: Path
    content: Plan | Mapping[str, ModelSignature]
    found: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Findings:
    """The findings of one check.

    notes: what the check assumed, or left out.
    models: the versions that can be loaded, by their path.
    steps: the paths of the versions that steps of pipelines use.
    """

    checked: list[Checked] = field(default_factory=list)
    faults: list[ModelFault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    models: dict[Path, TrialVersion] = field(default_factory=dict)
    steps: dict[ModelReference, Path] = field(default_factory=dict)

    def load(self, limit_s: float) -> None:
        """Loads each model as a server would, in a child process, and calls it; adds its findings.

        Args:
            limit_s: seconds that each model may take.
        """
        with closing(ModelTrials(limit_s)) as trials:
            found = {path: trials.of(version) for path, version in self.models.items()}
        for path, trial in found.items():
            self.notes += [f"{self.models[path]}: {note}" for note in dict.fromkeys(trial.notes)]
            self.faults += [ModelFault(path, fault) for fault in trial.faults]
            if trial.faults:
                self.checked = [each for each in self.checked if each.path != path]
        for each in list(self.checked):
            if not isinstance(each.content, Plan):
                each.found += found[each.path].found
            elif faults := [*self._steps_without_rows(each.content, found)]:
                self.faults += [ModelFault(each.path, fault) for fault in faults]
                self.checked.remove(each)

    def _steps_without_rows(self, plan: Plan, trials: Mapping[Path, Trial]) -> Iterator[str]:
        """The steps of a pipeline whose model gives no row for each row: their requests fail."""
        for step in plan.steps:
            for model in step.models:
                trial = trials[self.steps[model]]
                for output in step.outputs:
                    if misfit := trial.rowless.get((step.signature, output.name)):
                        yield f"step {step.name!r}: output {misfit}: it does not follow the rows of its inputs"


class _Target(NamedTuple):
    """The target of a check: a version, by its folder, or a model, by its name, or all models of a folder.

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

    # 1. The models that are there: `own` are asked about, `others` are those of steps.
    if config is not None:
        if models is not None:
            raise SettingsError("--models and --model-config-file should not be given both: the file names folders")
        own = others = OfflineModels(ModelList(_configs(config)).scan(), look, listed=True)
    else:
        if models is not None and not models.is_dir():
            raise SettingsError(f"--models is {str(models)!r}, but should be a folder")
        others = _models_in((models or target.models or settings.models).absolute(), look)
        own = others if models is None or target.models is None else _models_in(target.models, look)

    # 2. The target.
    check = _Check(look, own, others)
    if target.version is not None:
        check.version(target.name, target.version, is_draft=models is not None)
    else:
        check.models(target, listed=config is not None)
    check.findings.notes += others.notes
    for reference, path in others.steps.items():
        check.findings.steps[reference] = path
        check.findings.models.setdefault(path, TrialVersion(reference.name, version_number(path.name), str(path)))
    return check.findings


def _target(given: Path) -> _Target:
    path = Path(os.path.abspath(given))
    if path.is_file():
        if path.name not in {PIPELINE_FILE, *MODEL_FILES} and format_of(path):
            command = import_command(given, Path("models", model_name(path)))
            raise SettingsError(f"{given} is a model of another format: {command} makes a version of it")
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
    importable = model.incomplete and not is_numbered
    if model.versions or (not holds_models and (importable or not model.empty)):
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
        check_names_and_paths(configs)
        check_platforms({}, configs)
    except InvalidRequest as error:
        raise SettingsError(f"--model-config-file {file}: {error}") from None
    except OSError as error:
        raise SettingsError(f"--model-config-file {file} cannot be read: {error.strerror or error}") from None
    return configs


class _Check:
    """The check of a target. `own`: the models that are asked about; `others`: the models of steps."""

    def __init__(self, look: Look, own: OfflineModels, others: OfflineModels) -> None:
        self.findings = Findings()
        self._look = look
        self._own = own
        self._others = others

    def models(self, target: _Target, *, listed: bool) -> None:
        """Checks the models of the target that would be served."""
        configs, folder = self._own.layout.configs, (target.models or Path()) / target.name
        if listed:
            names = [name for name, each in configs.items() if folder in {each.base_path, *each.base_path.parents}]
        else:
            known = configs.keys() | self._own.layout.unreadable
            names = [target.name] if target.name in known else [] if target.name else sorted(known)
        if not names:
            expected = f"<name>/<version>/{SAVED_MODEL_FILE}, or {TFLITE_FILE} or {PIPELINE_FILE} in its place"
            what = "the list of models names none in it" if listed else f"it holds no model, which is {expected}"
            self.findings.faults.append(ModelFault(folder, what))
        for name in names:
            self.findings.faults += self._own.faults(name)
            for number, model in sorted(self._own.served(name).items()):
                self._content(name, number, model)
        if not listed:
            self._note_ignored(folder)

    def version(self, name: str, path: Path, *, is_draft: bool) -> None:
        """Checks one version, whether it would be served or not. `is_draft`: it is known to lie elsewhere."""
        if not name and not is_draft:
            self.findings.notes.append(f"{path.name} is not a version, a whole number: no server would find it here")
        number = version_number(path.name) if name else None
        try:
            self._content(name or path.name, number, self._look(name or path.name, path))
        except (ServingError, OSError) as error:
            self.findings.faults.append(ModelFault(path, str(error)))

    def _content(self, name: str, number: int | None, model: OfflineModel) -> None:
        """Records a model's signatures, or checks a pipeline. `number` None: the folder is no version."""
        version = TrialVersion(name, number, str(model.path))
        if model.signatures is not None:
            self.findings.checked.append(Checked(str(version), model.path, model.signatures))
            self.findings.models[model.path] = version
            return
        file = model.path / PIPELINE_FILE
        try:
            self.findings.checked.append(Checked(str(version), file, self._others.check(read_pipeline(model.path))))
        except PipelineInvalid as invalid:
            self.findings.faults += [ModelFault(file, fault) for fault in invalid.faults]
        except OSError as error:
            self.findings.faults.append(ModelFault(file, f"it cannot be read: {error.strerror or error}"))

    def _note_ignored(self, folder: Path) -> None:
        """Notes what a server would ignore below this folder, unless it is a fault."""
        told = {fault.path for fault in self.findings.faults}
        for ignored in sorted(self._own.layout.ignored, key=str):
            if folder in ignored.path.parents and ignored.path not in told:
                self.findings.notes.append(f"{ignored.path} is ignored: {ignored.reason}")
