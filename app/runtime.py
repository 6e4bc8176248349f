"""The seam to whatever executes a model: what runtimes and loaded models offer, and the registry of runtimes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from app.core.inference import Array, ModelSignature
from app.core.time_budget import TimeBudget
from app.core.values.value_hints import NO_HINTS, ValueHints
from app.core.values.value_kinds import Reach

#: Called before each call of a model with its number, the calls there will be, and what is run.
ProgressReport = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class VariantOptions:
    """Which of its execution variants a model may use.

    wanted: 'auto' takes the fastest; a variant's name takes that one wherever it is possible.
    cache: folder that remembers what was found; None remembers nothing.
    """

    wanted: str = "plain"
    cache: Path | None = None


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """What a runtime needs to know before it starts. 0 lets it choose; 0 replicas are one on each GPU.

    allowed_operations: names of operations that models may use although they reach outside: files, connections, Python.
    tensor_float_32: whether GPUs may round factors of float32 to 11 binary digits.
    """

    intra_op_threads: int = 0
    inter_op_threads: int = 0
    batches_in_flight: int = 0
    replicas: int = 1
    variants: VariantOptions = VariantOptions()
    allowed_operations: tuple[str, ...] = ()
    tensor_float_32: bool = True


@dataclass(frozen=True, slots=True)
class VariantChoice:
    """How one signature is executed at one batch size, and how many times as fast as the plain SavedModel.

    reach: the input values for which the variant was proven to answer as the plain SavedModel does, which answers the
        others; None if nothing was proven yet.
    """

    signature: str
    batch_size: int
    variant: str
    speed_up: float
    reach: Reach | None = None


class ShapeTrial(NamedTuple):
    """Inputs of the shapes to compile for, and shorter ones as those that would be padded to these shapes."""

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
        """Gives the memory back. Nothing runs on the model any more."""


@runtime_checkable
class TunableModel(LoadedModel, Protocol):
    """A LoadedModel that can be executed in several ways."""

    def tune(self, sizes: Sequence[int], report: ProgressReport, budget: TimeBudget) -> Sequence[VariantChoice]:
        """Find the fastest variant for each signature and batch size, as far as the budget allows, and use it.

        Blocking. Never fails: what cannot be tuned runs as it is. A signature that is not batchable has size 1.
        """


@runtime_checkable
class ReplicatedModel(LoadedModel, Protocol):
    """A LoadedModel that lives on several devices; called as one it is the first replica."""

    @property
    def replicas(self) -> Sequence[LoadedModel]:
        """One on each of the runtime's devices, in their order."""


@runtime_checkable
class PlacedModel(LoadedModel, Protocol):
    """A LoadedModel that says which devices it lies on."""

    @property
    def devices(self) -> Sequence[str]:
        """Those that each of its calls needs together, named as the runtime's; empty if one device is enough."""


@runtime_checkable
class PlainModel(LoadedModel, Protocol):
    """A LoadedModel that can be executed as it was saved, beside the way that is used."""

    def run_plain(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        """As `run`, as saved."""

    def stop_variants(self, signature: str) -> None:
        """From now on `run` executes the signature as it was saved."""


@runtime_checkable
class HintedModel(LoadedModel, Protocol):
    """A LoadedModel that tells something of the values that it accepts."""

    def value_hints(self, signature: str) -> ValueHints:
        """What is known of the inputs of a signature, by their names; read at the first call of this. Never fails."""


def hints_of(model: LoadedModel, signature: str) -> ValueHints:
    """What is known of the inputs of a signature; nothing if the model does not tell."""
    return model.value_hints(signature) if isinstance(model, HintedModel) else NO_HINTS


def replicas_of(model: LoadedModel) -> Sequence[LoadedModel]:
    """Its replicas; the model itself if it lives on one device alone."""
    return model.replicas if isinstance(model, ReplicatedModel) else (model,)


def devices_needed(model: LoadedModel) -> Sequence[str]:
    """The devices that each of its calls needs together; empty if one is enough."""
    return model.devices if isinstance(model, PlacedModel) else ()


def note_of(model: LoadedModel) -> str:
    """How a runtime loaded it (its attribute `note`), where that is unusual, and why; empty if it is not."""
    return str(getattr(model, "note", ""))


@runtime_checkable
class CompilableModel(LoadedModel, Protocol):
    """A LoadedModel that can be compiled for exact shapes."""

    def compile_shapes(self, signature: str, trials: Iterable[ShapeTrial], budget: TimeBudget) -> Sequence[float]:
        """Compile a signature for the shapes of the trials, in this order, as far as the budget allows.

        Blocking, and never fails. What is faster is used from then on. Returns for each of the first trials how many
        times as fast it is as the uncompiled call with the shorter inputs, 0 where it is not used; the rest was not
        tried.
        """


class Runtime(Protocol):
    """Executes models on the devices of this machine."""

    @property
    def devices(self) -> Sequence[str]:
        """The devices that models run on, in the runtime's own words ('GPU:0', 'CPU:0'): as many as there are
        replicas of a model at the most."""

    @property
    def batches_in_flight(self) -> int:
        """Calls that each device works on at the same time."""

    @property
    def parallel(self) -> bool:
        """Do the calls that a device works on at the same time get cores of their own?"""

    def load(self, path: Path) -> LoadedModel:
        """Reads the model in folder `path`, blocking.

        Raises:
            InferenceFailed: the folder holds no model that can be loaded; the text says why.
            FilesUnreadable: its files cannot be read, for a reason that may pass.
        """


class CompiledPrograms(NamedTuple):
    """How many programs a runtime compiled, whose memory this process never frees, and after how many it stops."""

    number: int
    limit: int

    @property
    def consequence(self) -> str:
        """What follows for later loads; empty while there is room."""
        return "what is loaded from now on is not compiled" if self.number >= self.limit else ""


@runtime_checkable
class CompilingRuntime(Runtime, Protocol):
    """A Runtime that compiles models."""

    @property
    def compiled_programs(self) -> CompiledPrograms: ...


@runtime_checkable
class MeteredRuntime(Runtime, Protocol):
    """A Runtime that tells what its devices' memory is used for."""

    def device_memory(self) -> Mapping[str, tuple[int, int]]:
        """By device, bytes that are used and the most that were; only of devices with memory of their own."""


_REGISTRY: dict[str, str] = {"tensorflow": "app.runtimes.tensorflow.start:start"}

#: What says what is missing in the folder of a version. It is called in another process and imports no runtime.
_MISSING_PART: dict[str, str] = {"tensorflow": "app.runtimes.tensorflow.saved_model.files:missing_part"}

#: What reads the signatures of a model without loading it.
_OFFLINE_SIGNATURES: dict[str, str] = {"tensorflow": "app.runtimes.tensorflow.start:read_offline"}


def runtime_names() -> Sequence[str]:
    return tuple(_REGISTRY)


def create_runtime(name: str, options: RuntimeOptions) -> Runtime:
    """Makes the runtime registered under `name`. Imports its module only now: TensorFlow loads slowly."""
    module, attribute = _REGISTRY[name].split(":")
    make: Callable[[RuntimeOptions], Runtime] = getattr(import_module(module), attribute)
    return make(options)


def missing_part_of(name: str) -> Callable[[Path], str] | None:
    """The function of runtime `name` that says what is missing in a version's folder; empty text if it is whole.

    It reads little, blocking, and raises OSError where it cannot. None if the runtime does not say.
    """
    if name not in _MISSING_PART:
        return None
    module, attribute = _MISSING_PART[name].split(":")
    missing_part: Callable[[Path], str] = getattr(import_module(module), attribute)
    return missing_part


def offline_signatures_of(name: str) -> Callable[[Path, Collection[str]], Mapping[str, ModelSignature]] | None:
    """The function of runtime `name` that reads the signatures of a model in a folder, and runs nothing of it.

    Its second argument is `allowed_operations`. It raises as `Runtime.load`. None if the runtime has none.
    """
    if name not in _OFFLINE_SIGNATURES:
        return None
    module, attribute = _OFFLINE_SIGNATURES[name].split(":")
    read: Callable[[Path, Collection[str]], Mapping[str, ModelSignature]] = getattr(import_module(module), attribute)
    return read
