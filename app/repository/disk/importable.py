"""Files that hold a model, but no version that can be served: by their names, the format that `ferry import` reads.

No file is opened: a status names the command for a folder that holds one. What reads them is in app/importing.
"""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote

#: Formats by the ending of a file. A format is a key of the registry in app/importing/formats.
_BY_ENDING = {
    ".keras": "keras",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".pb": "frozen_graph",
    ".pbtxt": "frozen_graph",
    ".meta": "checkpoint",
    ".tflite": "tflite",
    ".pkl": "pickle",
    ".pickle": "pickle",
    ".joblib": "pickle",
}

#: Formats by a file that their folder holds, the first that is there.
_BY_FILE = {
    "MLmodel": "mlflow",
    "saved_model.pb": "saved_model",
    "saved_model.pbtxt": "saved_model",
    "tf_model.h5": "hugging_face",
    "checkpoint": "checkpoint",
    "model.safetensors": "hugging_face",
    "pytorch_model.bin": "hugging_face",
    "model.weights.h5": "hugging_face",
    "saved_model/1/saved_model.pb": "hugging_face",
    "artifacts/MLmodel": "mlflow",
    "model/MLmodel": "mlflow",
}

#: Formats by the form of the path of such a file.
_BY_FORM = {"*.meta": "checkpoint", "artifacts/*/MLmodel": "mlflow"}

#: Files of SavedModels that are no graphs.
_OF_SAVED_MODELS = frozenset({"fingerprint.pb", "keras_metadata.pb"})

#: No format, and those that are refused.
_REFUSED = frozenset({"", "pickle", "weights"})


def format_of(path: Path) -> str:
    """The format of a file or folder, by names alone; empty if it is none that is known.

    Raises OSError: the folder cannot be read.
    """
    if not path.is_dir():
        if path.name.endswith((".weights.h5", ".weights.hdf5")):
            return "weights"
        if path.name in _OF_SAVED_MODELS:
            return ""
        return _BY_ENDING.get(path.suffix.lower(), "") or ("checkpoint" if _is_checkpoint(path) else "")
    kind = next((kind for name, kind in _BY_FILE.items() if (path / name).is_file()), "")
    return kind or next((kind for form, kind in _BY_FORM.items() if any(path.glob(form))), "")


def _is_checkpoint(path: Path) -> bool:
    """Whether the path is one of a checkpoint's files that says so, or the common beginning of their names."""
    if path.name in {"checkpoint", ".meta"} or Path(f"{path}.meta").is_file():
        return True
    return bool(path.suffix) and path.with_suffix(".meta").is_file()


def how_to_import(folder: Path, model: Path) -> str:
    """The command that makes a version of the folder of a model from what a folder holds; empty if it holds nothing.

    Raises OSError: the folder cannot be read.
    """
    source = _importable(folder)
    return "" if source is None else f"{held(source, folder)}: {import_command(source, model)} makes a version of it"


def import_command(source: Path, model: Path) -> str:
    return f"'ferry import {quote(str(source))} {quote(str(model))}'"


def held(source: Path, folder: Path) -> str:
    """The beginning of a sentence on a folder and what it holds: itself, or a file."""
    return "it is a model of another format" if source == folder else f"it holds {source.name}"


def importable_files(folder: Path) -> list[Path]:
    """The files of a folder that can be imported. Raises OSError."""
    files = [folder / name for name in sorted(os.listdir(folder)) if not name.startswith(".")]
    return [file for file in files if format_of(file) not in _REFUSED and file.is_file()]


def _importable(folder: Path) -> Path | None:
    if (kind := format_of(folder)) not in _REFUSED:
        return None if kind == "saved_model" else folder  # a version's folder may hold it as it is
    return next(iter(importable_files(folder)), None)
