"""Models of MLflow: a folder with `MLmodel`, of the flavours tensorflow and keras. MLflow itself is not needed.

Their files are read by the readers of SavedModels and of Keras. Pickles beside them (custom objects) are never read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from app.importing.formats import read as read_format
from app.importing.graphs.links import check_links
from app.importing.order import CannotImport, ImportOrder
from app.importing.source import Source
from app.repository.disk.importable import format_of

_FILE = "MLmodel"

#: The most bytes of an MLmodel. Chosen: a signature with thousands of columns.
_MOST_BYTES = 1 << 20

#: Where MLflow keeps a model in the folder of a run, and of a logged model.
_PLACES = ("", "artifacts", "artifacts/model", "model")

_FLAVOURS = ("tensorflow", "keras")

#: Files of models in the folder of a flavour's data.
_FILES = ("model.keras", "model.h5", "model")

#: A pickle of classes that the model's code has.
_CUSTOM_OBJECTS = "custom_objects.cloudpickle"


def read(path: Path, order: ImportOrder) -> Source:
    """The model in a folder of MLflow. Raises CannotImport."""
    folder = _model_folder(path)
    check_links(folder)
    flavours = _flavours(folder / _FILE)
    flavour = next((name for name in _FLAVOURS if name in flavours), None)
    if flavour is None:
        raise CannotImport(_other_flavour(flavours))
    model = _model_file(folder, flavours[flavour])
    try:
        source = read_format(format_of(model), model, order)
    except CannotImport as error:
        pickled = next(folder.rglob(_CUSTOM_OBJECTS), None)
        why = f" ({pickled.name} beside it is a pickle, and is not read)" if pickled else ""
        raise CannotImport(f"{error}{why}") from None
    return replace(source, format=f"MLflow model ({flavour}), {source.format}")


def _model_folder(path: Path) -> Path:
    """The folder with MLmodel: this one, or one below. Raises CannotImport: there is none, or several."""
    for place in _PLACES:
        if (path / place / _FILE).is_file():
            return path / place
    found = sorted(file.parent for file in path.glob(f"artifacts/*/{_FILE}"))
    if len(found) == 1:
        return found[0]
    names = ", ".join(each.name for each in found)
    raise CannotImport(
        f"{path.name} holds the models {names}; give the folder of one" if found else f"{path} has no {_FILE}"
    )


# --- MLmodel ---


class _PlainYaml(yaml.SafeLoader):
    """YAML without aliases, which make a few bytes a huge structure."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias")
        return super().compose_node(parent, index)


def _flavours(file: Path) -> Mapping[str, Any]:
    """The flavours of an MLmodel by name. Raises CannotImport: it is none."""
    size = file.stat().st_size
    if size > _MOST_BYTES:
        raise CannotImport(f"{_FILE} is {size:,} bytes; expected at most {_MOST_BYTES:,}")
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), _PlainYaml)  # noqa: S506 - it is a SafeLoader
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise CannotImport(
            f"{_FILE} is no plain YAML: {str(error).splitlines()[0] if str(error) else error!r}"
        ) from None
    flavours = content.get("flavors") if isinstance(content, dict) else None
    if not isinstance(flavours, dict) or not all(isinstance(each, dict) for each in flavours.values()):
        raise CannotImport(f"{_FILE} has no 'flavors'; expected is a mapping of flavours to their settings")
    return flavours


def _other_flavour(flavours: Mapping[str, Any]) -> str:
    loader = flavours.get("python_function", {}).get("loader_module", "")
    names = ", ".join(sorted(map(str, flavours))) + (f" of {loader}" if loader else "")
    return (
        f"its flavours are {names}; expected is tensorflow or keras: log it with mlflow.tensorflow.log_model, or "
        "serve it by 'mlflow models serve', since a Python model is a pickle"
    )


def _model_file(folder: Path, settings: Mapping[str, Any]) -> Path:
    """The file or folder of a flavour's model. Raises CannotImport: there is none, or it lies outside."""
    for place in _places(settings):
        found = folder / place
        if not found.resolve().is_relative_to(folder.resolve()):
            raise CannotImport(f"{_FILE} names {str(place)[:128]!r}, which lies outside its folder")
        if found.exists() and format_of(found):
            return found
    raise CannotImport(f"{_FILE} names no file of TensorFlow or Keras that is there; looked for {', '.join(_FILES)}")


def _places(settings: Mapping[str, Any]) -> Iterator[str]:
    saved_model, data = settings.get("saved_model_dir"), settings.get("data", "data")
    if isinstance(saved_model, str):
        yield saved_model
    if isinstance(data, str):
        yield from (f"{data}/{name}" for name in _FILES)
        yield data
