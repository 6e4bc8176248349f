"""Files that hold a model, but no version that can be served: by their names, the format that `ferry import` reads.

No file is opened: a status names the command for a folder that holds one. What reads them is in app/importing.
"""

from __future__ import annotations

from pathlib import Path

#: Formats by the ending of a file. A format is a key of the registry in app/importing/formats.
_BY_ENDING = {
    ".keras": "keras",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".pb": "frozen_graph",
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
}


def format_of(path: Path) -> str:
    """The format of a file or folder, by names alone; empty if it is none that is known.

    Raises OSError: the folder cannot be read.
    """
    if not path.is_dir():
        if path.name.endswith((".weights.h5", ".weights.hdf5")):
            return "weights"
        return _BY_ENDING.get(path.suffix.lower(), "")
    return next((kind for name, kind in _BY_FILE.items() if (path / name).is_file()), "")
