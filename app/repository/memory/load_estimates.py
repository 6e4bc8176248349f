"""How much memory the load of a version is expected to take: by its files, and by what loads of the model took before.

Measured with 300 MB each: variables take their size on disk. Constants in a graph take 14 times theirs at the peak of
the load, since TensorFlow parses the graph, imports it, and copies it into functions; 8 times stay.
"""

from __future__ import annotations

from app.repository.disk.disk_layout import MODEL_FILES, Fingerprint

#: Times the size of a file. Measured, see above; what else is there may be read whole.
_GRAPH, _OTHER = 14.0, 1.0

#: What any load takes, with its first calls. Chosen: the smallest models take 4 MB.
_LEAST_BYTES = 16 * 2**20

#: What earlier loads took changes an estimate by these factors at most. Chosen: other work is measured with them.
_LEAST_FACTOR, _MOST_FACTOR = 0.5, 2.0


def by_files(files: Fingerprint) -> float:
    """Bytes that a load of these files takes."""
    return _LEAST_BYTES + sum(size * (_GRAPH if name in MODEL_FILES else _OTHER) for name, size, _ in files)


class LoadEstimates:
    """Remembers, by model, what the last load took of what was expected by its files."""

    def __init__(self) -> None:
        self._factors: dict[str, float] = {}

    def need(self, model: str, files: Fingerprint) -> int:
        """Bytes that a load of this model from these files takes."""
        return int(by_files(files) * self._factors.get(model, 1.0))

    def note(self, model: str, files: Fingerprint, taken: float) -> None:
        """A load from these files took as many bytes at its peak; 0 if that could not be measured."""
        if taken > 0:
            self._factors[model] = min(max(taken / by_files(files), _LEAST_FACTOR), _MOST_FACTOR)

    def forget(self, model: str) -> None:
        """The model has left."""
        self._factors.pop(model, None)

    def __repr__(self) -> str:
        return f"<LoadEstimates {self._factors}>"
