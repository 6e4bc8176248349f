"""The seam to whatever executes a model: two Protocols and the registry of their makers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol

from app.inference import Array, ModelSignature


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """What a runtime needs to know before it starts. 0 threads lets the runtime choose."""

    intra_op_threads: int = 0
    inter_op_threads: int = 0


class LoadedModel(Protocol):
    """A model in memory. `run` may be called from any thread."""

    @property
    def signatures(self) -> Mapping[str, ModelSignature]: ...

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        """Executes one call, blocking, and returns the outputs wanted (all, where `outputs` is empty).

        Raises:
            InvalidRequest: the model refused these input values.
            OutOfMemory: the device had no room for this call.
            InferenceFailed: anything else that went wrong.
        """

    def close(self) -> None:
        """Gives the memory back. Nothing runs on the model any more."""


class Runtime(Protocol):
    """Executes models on the devices of this machine."""

    @property
    def devices(self) -> Sequence[str]:
        """The devices that models run on, in the runtime's own words ('GPU:0', 'CPU:0')."""

    def load(self, path: Path) -> LoadedModel:
        """Reads the model in folder `path`, blocking.

        Raises:
            InferenceFailed: the folder holds no model that can be loaded; the text says why.
        """


_REGISTRY: dict[str, str] = {"tensorflow": "app.runtimes.tensorflow_runtime:TensorFlowRuntime"}


def runtime_names() -> Sequence[str]:
    return tuple(_REGISTRY)


def create_runtime(name: str, options: RuntimeOptions) -> Runtime:
    """Makes the runtime registered under `name`. Imports its module only now: TensorFlow loads slowly."""
    module, attribute = _REGISTRY[name].split(":")
    make: Callable[[RuntimeOptions], Runtime] = getattr(import_module(module), attribute)
    return make(options)
