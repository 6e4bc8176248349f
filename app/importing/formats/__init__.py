"""The source formats, a file for each: readers of models, by the names of app/repository/disk/importable.py.

A reader is called in the child process. It may import what its format needs, runs nothing of the source that
`order.trust` does not allow, and raises CannotImport with one sentence that says what to do.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name

from app.importing.order import ImportOrder
from app.importing.source import Source

#: By format, the function `(path, order) -> Source` that reads it.
_REGISTRY = {
    "keras": "app.importing.formats.keras_archive:read",
    "hdf5": "app.importing.formats.keras_hdf5:read",
    "saved_model": "app.importing.formats.saved_model:read",
    "checkpoint": "app.importing.formats.tf1_checkpoint:read",
    "frozen_graph": "app.importing.formats.frozen_graph:read",
    "mlflow": "app.importing.formats.mlflow:read",
    "hugging_face": "app.importing.formats.hugging_face:read",
    "tflite": "app.importing.formats.tflite:read",
    "pickle": "app.importing.formats.refused:read_pickle",
    "weights": "app.importing.formats.refused:read_weights",
}


def read(kind: str, path: Path, order: ImportOrder) -> Source:
    """The model at `path`, which has this format. Raises CannotImport."""
    reader: Callable[[Path, ImportOrder], Source] = resolve_name(_REGISTRY[kind])
    return reader(path, order)
