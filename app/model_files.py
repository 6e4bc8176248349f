"""The names of the files that hold a model, and which runtime serves a folder with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

SAVED_MODEL_FILE, TFLITE_FILE = "saved_model.pb", "model.tflite"

#: The files of models in a version's folder, by the runtime that reads them.
FILES_OF_RUNTIMES: Mapping[str, tuple[str, ...]] = {
    "tensorflow": (SAVED_MODEL_FILE, "saved_model.pbtxt"),
    "litert": (TFLITE_FILE,),
}

#: The fault of a version's folder without a model. A pipeline lies in `pipeline.yaml` (app/repository/disk).
NO_MODEL = f"it holds no {SAVED_MODEL_FILE}, {TFLITE_FILE} or pipeline.yaml"

MODEL_FILES = tuple(file for files in FILES_OF_RUNTIMES.values() for file in files)


def runtime_of(version: Path, preferred: str) -> str:
    """The name of the runtime that serves a version's folder: the preferred one unless only another one has files."""
    if preferred not in FILES_OF_RUNTIMES:
        return preferred
    found = [name for name, files in FILES_OF_RUNTIMES.items() if any((version / file).is_file() for file in files)]
    return preferred if preferred in found or not found else found[0]


def missing_part_by_files(functions: Mapping[str, Callable[[Path], str]], preferred: str, version: Path) -> str:
    """The missing part of a version's folder by the function of the runtime that serves it; empty if it is whole."""
    return functions[runtime_of(version, preferred)](version)
