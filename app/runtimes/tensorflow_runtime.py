"""TensorFlow as a runtime: its threads, its devices, its models."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from app.errors import InferenceFailed
from app.runtime import RuntimeOptions
from app.runtimes.failures import first_meaningful_line
from app.runtimes.saved_model import SavedModel


class TensorFlowRuntime:
    """Executes SavedModels on the first GPU where there is one, else on the CPU.

    Each operation goes where TensorFlow has a kernel for it: strings and tables stay on the CPU.
    TensorFlow has one configuration per process, fixed by its first operation.

    Raises:
        RuntimeError: TensorFlow already runs in this process with other numbers of threads.
    """

    def __init__(self, options: RuntimeOptions) -> None:
        threading = tf.config.threading
        _set_threads("intra_op_threads", options.intra_op_threads, threading.set_intra_op_parallelism_threads)
        _set_threads("inter_op_threads", options.inter_op_threads, threading.set_inter_op_parallelism_threads)
        gpus = tf.config.list_physical_devices("GPU")
        for gpu in gpus:
            # Without growth TensorFlow takes all memory of every GPU at once, its neighbours' share included.
            tf.config.experimental.set_memory_growth(gpu, True)
        self._device = "GPU:0" if gpus else "CPU:0"
        self._kind = _kind(gpus)
        self._variants = options.variants

    @property
    def devices(self) -> Sequence[str]:
        return (self._device,)

    def load(self, path: Path) -> SavedModel:
        try:
            return SavedModel(path, self._variants, self._kind)
        except Exception as error:
            name = "/".join(path.parts[-2:])
            raise InferenceFailed(f"{name} cannot be loaded: {first_meaningful_line(error)}") from error


def _kind(gpus: Sequence[Any]) -> str:
    """What executes, as far as it decides which form of a model is the fastest."""
    if not gpus:
        return platform.processor() or "CPU"
    return str(tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU"))


def _set_threads(setting: str, threads: int, set_threads: Callable[[int], None]) -> None:
    if threads == 0:
        return
    try:
        set_threads(threads)
    except RuntimeError as error:
        raise RuntimeError(
            f"{setting} {threads} comes too late: TensorFlow already runs with another number"
        ) from error
