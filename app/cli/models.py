"""The model that a command names, found and loaded in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.config.settings import Settings
from app.config.sources import load_settings
from app.core.errors import InvalidRequest, ModelNotFound
from app.importing.version_folder import model_name
from app.model_files import runtime_of
from app.repository.disk.disk_layout import PIPELINE_FILE, missing_graph, scan_model
from app.repository.disk.importable import format_of, import_command

if TYPE_CHECKING:
    from app.runtime import LoadedModel, Runtime

ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="Folder of a model or of one version, or a name in the models folder.")
]
ModelsOption = Annotated[
    Path | None, typer.Option("--models", metavar="FOLDER", help="Folder of the models. [env: FERRY_MODELS]")
]


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """A model in this process.

    Attributes:
        path: the version's folder.
        runtime: has loaded it.
    """

    path: Path
    model: LoadedModel
    settings: Settings
    runtime: Runtime


@contextmanager
def opened_model(model: str, models: Path | None) -> Iterator[OpenedModel]:
    """The model that a command names, which is closed when the context ends.

    Raises:
        SettingsError: the environment holds a wrong setting.
        ModelNotFound: there is no such model.
        InvalidRequest: it is a pipeline.
        InferenceFailed: the model cannot be loaded.
    """
    settings = load_settings({} if models is None else {"models": models})
    path = find_version(model, settings.models)
    if (path / PIPELINE_FILE).is_file():
        raise InvalidRequest(
            f"{path.parent.name}/{path.name} is a pipeline: 'ferry check {path}' shows its inputs and outputs; to ask "
            "it, start 'ferry serve'"
        )
    from app.runtime import RuntimeOptions, create_runtime  # noqa: PLC0415 - numpy, and TensorFlow behind it
    from app.runtimes.tensorflow.start import without_banner  # noqa: PLC0415 - TensorFlow

    options = RuntimeOptions(
        settings.intra_op_threads,
        settings.inter_op_threads,
        settings.batches_in_flight,
        allowed_operations=tuple(settings.allowed_operations),
        tensor_float_32=settings.tensor_float_32,
        operation_libraries=tuple(settings.operation_libraries),
    )
    with without_banner():
        runtime = create_runtime(runtime_of(path, settings.runtime), options)
    loaded = runtime.load(path)
    try:
        yield OpenedModel(path, loaded, settings, runtime)
    finally:
        loaded.close()


def find_version(model: str, models: Path) -> Path:
    """The version folder that `model` names: the folder itself, or the newest version in it. Raises ModelNotFound."""
    for folder in (Path(model), models / model):
        if not folder.is_dir():
            continue
        if not missing_graph(folder):
            return folder
        versions = scan_model(folder).versions
        if versions:
            return versions[max(versions)]
    if format_of(Path(model)):
        command = import_command(Path(model), models / model_name(Path(model)))
        raise ModelNotFound(f"{model} is a model of another format: {command} makes a version of it")
    raise ModelNotFound(f"No model at {model} and none of that name in {models}")
