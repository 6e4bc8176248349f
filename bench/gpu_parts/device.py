"""What a part runs on, and what all parts are told. Imports TensorFlow: only processes of parts import it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from app.runtimes.tensorflow.tensorflow_runtime import computes_in_tf32
from bench.gpu_parts.models import Array, model_folder, read_samples
from bench.gpu_parts.report import Report
from bench.gpu_parts.turns import Turns

#: Why what needs a GPU was not measured.
NO_GPU = "TensorFlow sees no GPU here"

#: Logical devices that are made of one CPU in a dry run, and of the only GPU where several are needed.
LOGICAL = 2

#: Memory of each logical GPU: enough for the models here.
_LOGICAL_GPU_MB = 8192

SIGNATURE = "serving_default"

#: How far answers may lie from those of the CPU, relative to the largest: on a GPU TensorFlow multiplies in TF32, whose
#: numbers have 11 binary digits (precision.py: 53 products).
APART = {"GPU": 6e-2, "CPU": 1e-4}


T = TypeVar("T")


class NoGpu(Exception):
    """TensorFlow sees no GPU, and this is no dry run."""


@dataclass(frozen=True, slots=True)
class Device:
    """kind: 'GPU' or 'CPU'. count: of that kind. shared: they are logical ones of one real device."""

    kind: str
    count: int
    facts: dict[str, str]
    shared: bool = False

    @property
    def is_gpu(self) -> bool:
        return self.kind == "GPU"

    @property
    def tf32(self) -> bool:
        return computes_in_tf32(tf.config.list_physical_devices("GPU"))

    @property
    def name(self) -> str:
        """The first of them, as tf.device takes it."""
        return f"/device:{self.kind}:0"

    @property
    def settings(self) -> dict[str, Any]:
        """Ferry's settings for an engine: on a GPU, the threads that TensorFlow chooses; in a dry run, one a call."""
        return {"intra_op_threads": 0 if self.is_gpu else 1}


@dataclass(frozen=True, slots=True)
class PartRun:
    """models: their names. search: Ferry's execution_variant. load_s: Ferry's load_budget_s."""

    device: Device
    report: Report
    turns: Turns
    models: list[str]
    folder: Path
    search: str
    load_s: float

    @property
    def settings(self) -> dict[str, Any]:
        return {**self.device.settings, "execution_variant": self.search, "load_budget_s": self.load_s}

    def each(self, pieces: Sequence[T]) -> Iterator[tuple[T, Turns]]:
        """Each piece with its share of the time; what no time is left for is told as not measured. The first always."""
        for number, piece in enumerate(pieces):
            turns = self.turns.piece(number, len(pieces))
            if number and turns.left_s <= 0:
                self.report.not_measured(str(piece), "the part's time was over")
            else:
                yield piece, turns

    def repository(self, model: str) -> Path:
        return model_folder(self.folder, model) / "repository"

    def samples(self, model: str) -> tuple[Array, Array]:
        return read_samples(self.folder, model)


def find_device(dry_run: bool, *, several: bool = False) -> Device:
    """To be called before TensorFlow runs anything. several: the only GPU becomes two. Raises NoGpu."""
    gpus = tf.config.list_physical_devices("GPU")
    build = {key: str(value) for key, value in tf.sysconfig.get_build_info().items() if "version" in key}
    facts = {"tensorflow": tf.__version__, **build}
    if gpus:
        shared = several and len(gpus) == 1
        if shared:
            logical = tf.config.LogicalDeviceConfiguration(memory_limit=_LOGICAL_GPU_MB)
            tf.config.set_logical_device_configuration(gpus[0], [logical] * LOGICAL)
        else:
            for gpu in gpus:  # as Ferry's runtime does; it cannot be changed later
                tf.config.experimental.set_memory_growth(gpu, True)
        details = tf.config.experimental.get_device_details(gpus[0])
        facts |= {key: str(value) for key, value in details.items()}
        return Device("GPU", LOGICAL if shared else len(gpus), facts, shared)
    if not dry_run:
        raise NoGpu(f"{NO_GPU}; expected one: see TensorFlow's own lines above, or ask for --dry-run")
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * LOGICAL)
    return Device("CPU", LOGICAL, facts, shared=True)


def try_device(device: Device) -> dict[str, str]:
    """Whether it computes, and whether XLA compiles for it: found in seconds, before minutes are spent on it."""
    with tf.device(device.name):
        x = tf.random.normal([256, 256])
        plain = tf.function(lambda x: tf.nn.relu(x @ x) + 1.0)
        compiled = tf.function(lambda x: tf.nn.relu(x @ x) + 1.0, jit_compile=True)
        found = {}
        for name, function in (("a product", plain), ("XLA", compiled)):
            try:
                right = furthest(function(x).numpy(), np.maximum(x.numpy() @ x.numpy(), 0) + 1) < APART[device.kind]
                found[name] = "works" if right else "DOES NOT WORK: its answer is wrong"
            except Exception as error:  # whatever TensorFlow raises
                found[name] = f"DOES NOT WORK: {str(error).splitlines()[0]}"
    return found


def bare_call(path: Path) -> Callable[[Array], Array]:
    """The signature as it is, as a loop without a server would call it: from one array to one array."""
    loaded = tf.saved_model.load(str(path))
    signature = loaded.signatures[SIGNATURE]
    (name,) = signature.structured_input_signature[1]
    (output,) = signature.structured_outputs

    def call(batch: Array, _alive: Any = loaded) -> Array:
        answer: Array = signature(**{name: tf.constant(batch)})[output].numpy()
        return answer

    return call


def furthest(found: Array, expected: Array) -> float:
    """The largest difference, relative to the largest number."""
    return float(np.abs(found.astype(np.float64) - expected).max() / np.abs(expected).max())


class CannotLock(Exception):
    """Memory cannot be page-locked here; the text says why."""


def page_lock(array: Array) -> Callable[[], None]:
    """Locks an array's pages, so that the GPU copies from them by itself; returns what unlocks them.

    Raises CannotLock.
    """
    runtime = _cuda_runtime()
    address = ctypes.c_void_p(array.ctypes.data)
    if status := runtime.cudaHostRegister(address, ctypes.c_size_t(array.nbytes), ctypes.c_uint(0)):
        raise CannotLock(f"cudaHostRegister answered {status}")
    return lambda: runtime.cudaHostUnregister(address)


def _cuda_runtime() -> Any:
    """CUDA's runtime library, from the wheel that TensorFlow uses, else from the system."""
    try:
        package = find_spec("nvidia.cuda_runtime")
    except ModuleNotFoundError:
        package = None
    folders = list(package.submodule_search_locations or ()) if package else []
    names = [str(Path(folder) / "lib" / "libcudart.so.12") for folder in folders] + ["libcudart.so.12"]
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CannotLock(f"no libcudart.so.12 could be loaded; tried {', '.join(names)}")
