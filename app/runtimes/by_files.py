"""The runtimes of a process: each model is loaded by the one whose files lie in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from app.model_files import runtime_of
from app.runtime import LoadedModel, Runtime, RuntimeOptions, create_runtime


class RuntimesByFiles:
    """A Runtime that consists of the preferred one and of others, which start when a folder first needs them.

    Devices and calls at the same time are those of the preferred one.

    Attributes:
        started: the runtimes that have started, the preferred one first.
    """

    def __init__(self, preferred: str, options: RuntimeOptions) -> None:
        self._preferred = preferred
        self._options = options
        self._runtimes = {preferred: create_runtime(preferred, options)}
        self._starting = Lock()

    @property
    def started(self) -> Sequence[Runtime]:
        return tuple(self._runtimes.values())

    @property
    def devices(self) -> Sequence[str]:
        return self._runtimes[self._preferred].devices

    @property
    def batches_in_flight(self) -> int:
        return self._runtimes[self._preferred].batches_in_flight

    @property
    def parallel(self) -> bool:
        return self._runtimes[self._preferred].parallel

    def load(self, path: Path) -> LoadedModel:
        name = runtime_of(path, self._preferred)
        with self._starting:
            if name not in self._runtimes:
                self._runtimes[name] = create_runtime(name, self._options)
        return self._runtimes[name].load(path)
