"""Estimates of the memory that a load takes: by the files of the version, and by earlier loads of the model.

Measured with 300 MB each: variables take their size on disk. Constants in a graph take 14 times their size at the peak
of the load, since TensorFlow parses the graph, imports it, and copies it into functions; 8 times stay. A TFLite file
takes three times its size (100 MB): once as it is, and packed for each of two interpreters.
"""

from __future__ import annotations

from app.model_files import FILES_OF_RUNTIMES
from app.repository.disk.disk_layout import Fingerprint

#: Memory by the size of a file. Measured, see above; other files may be read whole.
_GRAPH, _TFLITE, _OTHER = 14.0, 3.0, 1.0
_FACTORS = {
    **dict.fromkeys(FILES_OF_RUNTIMES["tensorflow"], _GRAPH),
    **dict.fromkeys(FILES_OF_RUNTIMES["litert"], _TFLITE),
}

#: The least bytes of a load with its first calls. Chosen: the smallest models take 4 MB.
_LEAST_BYTES = 16 * 2**20

#: The bounds of the factor by which earlier loads change an estimate. Chosen: other work is measured with them.
_LEAST_FACTOR, _MOST_FACTOR = 0.5, 2.0


def by_files(files: Fingerprint) -> float:
    """The bytes that a load of these files takes."""
    return _LEAST_BYTES + sum(size * _FACTORS.get(name, _OTHER) for name, size, _ in files)


class LoadEstimates:
    """The factors of models: what the last load took, relative to the estimate by its files."""

    def __init__(self) -> None:
        self._factors: dict[str, float] = {}

    def need(self, model: str, files: Fingerprint) -> int:
        """The bytes that a load of a model from these files takes."""
        return int(by_files(files) * self._factors.get(model, 1.0))

    def note(self, model: str, files: Fingerprint, taken: float) -> None:
        """Note the bytes that a load from these files took at its peak; 0 if that could not be measured."""
        if taken > 0:
            self._factors[model] = min(max(taken / by_files(files), _LEAST_FACTOR), _MOST_FACTOR)

    def forget(self, model: str) -> None:
        """Forget a model that is no longer listed."""
        self._factors.pop(model, None)

    def __repr__(self) -> str:
        return f"<LoadEstimates {self._factors}>"
