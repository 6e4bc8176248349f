"""The interface of runtimes and of loaded models, and the registry of runtimes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import NamedTuple, Protocol, runtime_checkable

from app.core.inference import Array, ModelSignature
from app.core.time_budget import TimeBudget
from app.core.values.value_hints import NO_HINTS, ValueHints
from app.core.values.value_kinds import Reach
from app.model_files import missing_part_by_files, runtime_of

#: Called before each call of a model with its number, the number of all calls, and the name of the work.
ProgressReport = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class VariantOptions:
    """The execution variants that a model may use.

    wanted: 'auto' takes the fastest variant; a variant's name takes that one wherever it is possible.
    cache: the folder of earlier results; None for no cache.
    """

    wanted: str = "plain"
    cache: Path | None = None


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """The options of a runtime. 0 lets it choose; 0 replicas are one on each GPU.

    allowed_operations: names of operations that models may use although they reach files, connections or Python.
    tensor_float_32: whether GPUs may round factors of float32 to 11 binary digits.
    operation_libraries: packages, modules and shared libraries whose operations models may use, loaded at the start.
    """

    intra_op_threads: int = 0
    inter_op_threads: int = 0
    batches_in_flight: int = 0
    replicas: int = 1
    variants: VariantOptions = VariantOptions()
    allowed_operations: tuple[str, ...] = ()
    tensor_float_32: bool = True
    operation_libraries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VariantChoice:
    """The variant of one signature at one batch size, and its speed-up over the plain SavedModel.

    reach: the input values for which the variant was proven to answer as the plain SavedModel does, which answers other
        values; None if nothing was proven yet.
    """

    signature: str
    batch_size: int
    variant: str
    speed_up: float
    reach: Reach | None = None


class ShapeTrial(NamedTuple):
    """Inputs of the shapes to compile for, and shorter inputs that would be padded to these shapes."""

    inputs: Mapping[str, Array]
    shorter: Mapping[str, Array]


class LoadedModel(Protocol):
    """A model in memory. `run` may be called from any thread."""

    @property
    def signatures(self) -> Mapping[str, ModelSignature]: ...

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        """Executes one call, blocking, and returns the outputs wanted (all, where `outputs` is empty).

        Raises:
            InvalidRequest: the model rejected these input values.
            OutOfMemory: the device had no room for this call.
            InferenceFailed: anything else that went wrong.
        """

    def close(self) -> None:
        """Free the memory. No call runs on the model any more."""


@runtime_checkable
class TunableModel(LoadedModel, Protocol):
    """A LoadedModel that can be executed in several ways."""

    def tune(self, sizes: Sequence[int], report: ProgressReport, budget: TimeBudget) -> Sequence[VariantChoice]:
        """Find the fastest variant for each signature and batch size, as far as the budget allows, and use it.

        Blocking. Never fails: a signature that cannot be tuned runs as it is. One that is not batchable has size 1.
        """


@runtime_checkable
class ReplicatedModel(LoadedModel, Protocol):
    """A LoadedModel that lives on several devices; its own `run` is that of the first replica."""

    @property
    def replicas(self) -> Sequence[LoadedModel]:
        """The replicas, one on each of the runtime's devices, in their order."""


@runtime_checkable
class PlacedModel(LoadedModel, Protocol):
    """A LoadedModel that lies on several devices."""

    @property
    def devices(self) -> Sequence[str]:
        """The devices that a call needs together, by the runtime's names; empty if one device is enough."""


@runtime_checkable
class PlainModel(LoadedModel, Protocol):
    """A LoadedModel that can also be executed as it was saved."""

    def run_plain(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        """Execute one call as by `run`, with the model as it was saved."""

    def stop_variants(self, signature: str) -> None:
        """Let `run` execute the signature as it was saved, from now on."""


@runtime_checkable
class HintedModel(LoadedModel, Protocol):
    """A LoadedModel with hints of the values that it accepts."""

    def value_hints(self, signature: str) -> ValueHints:
        """The hints of a signature, by input; read at the first call of this method. Never fails."""


def hints_of(model: LoadedModel, signature: str) -> ValueHints:
    """The hints of a signature; none if the model has none."""
    return model.value_hints(signature) if isinstance(model, HintedModel) else NO_HINTS


def replicas_of(model: LoadedModel) -> Sequence[LoadedModel]:
    """The replicas of a model; the model itself if it lives on one device alone."""
    return model.replicas if isinstance(model, ReplicatedModel) else (model,)


def devices_needed(model: LoadedModel) -> Sequence[str]:
    """The devices that a call of the model needs together; empty if one is enough."""
    return model.devices if isinstance(model, PlacedModel) else ()


def note_of(model: LoadedModel) -> str:
    """The note of a model that was loaded in an unusual way (its attribute `note`); empty for a usual one."""
    return str(getattr(model, "note", ""))


@runtime_checkable
class CompilableModel(LoadedModel, Protocol):
    """A LoadedModel that can be compiled for exact shapes."""

    def compile_shapes(self, signature: str, trials: Iterable[ShapeTrial], budget: TimeBudget) -> Sequence[float]:
        """Compile a signature for the shapes of the trials, in this order, as far as the budget allows.

        Blocking, and never fails. A faster program is used from then on. Returns for each of the first trials the
        speed-up over the uncompiled call with the shorter inputs, 0 where the program is not used; further trials were
        not made.
        """


class Runtime(Protocol):
    """Executes models on the devices of this machine."""

    @property
    def devices(self) -> Sequence[str]:
        """The devices that models run on, by the runtime's names ('GPU:0', 'CPU:0'): one for each replica at most."""

    @property
    def batches_in_flight(self) -> int:
        """Calls that each device works on at the same time."""

    @property
    def parallel(self) -> bool:
        """Whether calls that a device works on at the same time get cores of their own."""

    def load(self, path: Path) -> LoadedModel:
        """Reads the model in folder `path`, blocking.

        Raises:
            InferenceFailed: the folder holds no model that can be loaded; the text says why.
            FilesUnreadable: its files cannot be read, for a reason that may pass.
        """


class CompiledPrograms(NamedTuple):
    """The number of programs that a runtime compiled, whose memory is never freed, and its limit."""

    number: int
    limit: int

    @property
    def consequence(self) -> str:
        """The consequence for later loads; empty while there is room."""
        return "what is loaded from now on is not compiled" if self.number >= self.limit else ""


@runtime_checkable
class CompilingRuntime(Runtime, Protocol):
    """A Runtime that compiles models."""

    @property
    def compiled_programs(self) -> CompiledPrograms: ...


@runtime_checkable
class MeteredRuntime(Runtime, Protocol):
    """A Runtime that measures the memory of its devices."""

    def device_memory(self) -> Mapping[str, tuple[int, int]]:
        """The bytes in use, and the most that were, by device; only for devices with their own memory."""


_REGISTRY: dict[str, str] = {
    "tensorflow": "app.runtimes.tensorflow.start:start",
    "litert": "app.runtimes.litert.litert_runtime:start",
}

#: The functions that find what is missing in a version's folder. They run in another process and import no runtime.
_MISSING_PART: dict[str, str] = {
    "tensorflow": "app.runtimes.tensorflow.saved_model.files:missing_part",
    "litert": "app.runtimes.litert.tflite_file:missing_part",
}

#: The functions that read the signatures of a model without loading it.
_OFFLINE_SIGNATURES: dict[str, str] = {
    "tensorflow": "app.runtimes.tensorflow.start:read_offline",
    "litert": "app.runtimes.litert.litert_runtime:read_offline",
}


def runtime_names() -> Sequence[str]:
    return tuple(_REGISTRY)


def create_runtime(name: str, options: RuntimeOptions) -> Runtime:
    """The runtime registered under `name`. Its module is imported only now: TensorFlow loads slowly."""
    make: Callable[[RuntimeOptions], Runtime] = resolve_name(_REGISTRY[name])
    return make(options)


def missing_part_of(preferred: str) -> Callable[[Path], str] | None:
    """The function that says what is missing in a version's folder, by the runtime that serves it.

    Its result is empty if the folder is whole. It reads little, blocking, raises OSError if it cannot, and can be sent
    to another process. None if the preferred runtime has none.
    """
    if preferred not in _MISSING_PART:
        return None
    functions: dict[str, Callable[[Path], str]] = {name: resolve_name(place) for name, place in _MISSING_PART.items()}
    return partial(missing_part_by_files, functions, preferred)


def offline_signatures_of(
    preferred: str,
) -> Callable[[Path, Collection[str], Collection[str]], Mapping[str, ModelSignature]] | None:
    """The function that reads the signatures of a model in a folder by the runtime that serves it, and runs nothing.

    Its other arguments are `allowed_operations` and `operation_libraries`. It raises as `Runtime.load`. None if the
    preferred runtime has none.
    """
    if preferred not in _OFFLINE_SIGNATURES:
        return None

    def read(
        path: Path, allowed_operations: Collection[str], operation_libraries: Collection[str]
    ) -> Mapping[str, ModelSignature]:
        function = resolve_name(_OFFLINE_SIGNATURES[runtime_of(path, preferred)])
        signatures: Mapping[str, ModelSignature] = function(path, allowed_operations, operation_libraries)
        return signatures

    return read
