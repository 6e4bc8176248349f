"""TensorFlow as a runtime: its threads, its devices, its models."""

from __future__ import annotations

import gc
import logging
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import tensorflow as tf

from app.core.errors import InvalidRequest, drop_frames
from app.runtime import CompiledPrograms, LoadedModel, RuntimeOptions
from app.runtimes.parallelism import share_cores, usable_cores
from app.runtimes.tensorflow import private_api
from app.runtimes.tensorflow.error_mapping import (
    first_meaningful_line,
    is_no_memory,
    is_passing,
    load_failure,
    model_name,
)
from app.runtimes.tensorflow.execution.programs import PROGRAMS
from app.runtimes.tensorflow.operation_libraries.needed import load_named, load_needed, needed_libraries
from app.runtimes.tensorflow.operation_libraries.shared_libraries import LibraryUnusable
from app.runtimes.tensorflow.saved_model.named_devices import named_devices
from app.runtimes.tensorflow.saved_model.operation_check import check_operations
from app.runtimes.tensorflow.saved_model.replicas import Replicas
from app.runtimes.tensorflow.saved_model.saved_model import SavedModel
from app.runtimes.tensorflow.saved_model.session_model import SessionModel
from app.runtimes.tensorflow.saved_model.signature_defs import serving_graph, why_session
from app.runtimes.tensorflow.variants.compiled_code import keep_compiled_code

logger = logging.getLogger(__name__)

#: Batches in flight on a GPU: one call's inputs are put together and its outputs taken apart while the other computes.
#: Measured by `python -m bench.gpu` on a H200: 1.04 to 1.54 times the rows of one.
_ON_A_GPU = 2


class TensorFlowRuntime:
    """The Runtime that executes SavedModels on the first GPUs, one replica on each; on the CPU if there is no GPU.

    A SavedModel whose graph names several devices has one replica, which lies on all of them.

    TensorFlow places each operation on a device that has a kernel for it: strings and tables stay on the CPU.
    TensorFlow has one configuration per process, fixed by its first operation.

    Raises:
        RuntimeError: TensorFlow already runs in this process with other numbers of threads.
        InvalidRequest: `replicas` is larger than the number of devices, or a library of operations cannot be loaded.
    """

    def __init__(self, options: RuntimeOptions) -> None:
        if options.variants.cache is not None:  # before the first look at devices: TensorFlow reads its flags then
            keep_compiled_code(options.variants.cache, tf.__version__)
        threading = tf.config.threading
        _set_threads("intra_op_threads", options.intra_op_threads, threading.set_intra_op_parallelism_threads)
        _set_threads("inter_op_threads", options.inter_op_threads, threading.set_inter_op_parallelism_threads)
        gpus = tf.config.list_physical_devices("GPU")
        self.batches_in_flight, self.parallel = options.batches_in_flight or _ON_A_GPU, False
        if not gpus:
            self._share_cores(options)
        for gpu in gpus:
            # Without growth TensorFlow reserves all memory of every GPU, other processes' included. The errors: it
            # already runs in this process and keeps its mode; or the GPU was divided into logical GPUs with limits.
            with suppress(RuntimeError, ValueError):
                tf.config.experimental.set_memory_growth(gpu, True)
        tf.config.experimental.enable_tensor_float_32_execution(options.tensor_float_32)
        self._tf32 = computes_in_tf32(gpus)
        self.devices = _choose("GPU" if gpus else "CPU", options.replicas)
        if len(gpus) > len(self.devices):
            logger.warning("TensorFlow uses %d of %d GPUs; set replicas to 0 to use all", len(self.devices), len(gpus))
        self._kind = f"{_kind(gpus)} in TF32" if self._tf32 else _kind(gpus)
        self._variants = options.variants
        self._allowed_operations = options.allowed_operations
        private_api.check_all()
        try:
            load_named(options.operation_libraries)
        except LibraryUnusable as error:
            raise InvalidRequest(str(error)) from None

    def load(self, path: Path) -> LoadedModel:
        try:
            return self._load(path)
        except Exception as error:
            raise load_failure(path, error) from error

    @property
    def compiled_programs(self) -> CompiledPrograms:
        return CompiledPrograms(PROGRAMS.compiled, PROGRAMS.most_compiled)

    def device_memory(self) -> Mapping[str, tuple[int, int]]:
        """The bytes that TensorFlow uses, and the most that it has used, by GPU."""
        memory = {name: tf.config.experimental.get_memory_info(name) for name in self.devices if name[:3] == "GPU"}
        return {name: (each["current"], each["peak"]) for name, each in memory.items()}

    def _share_cores(self, options: RuntimeOptions) -> None:
        self.batches_in_flight, threads = share_cores(
            usable_cores(), options.batches_in_flight, options.intra_op_threads
        )
        self.parallel = self.batches_in_flight > 1
        if not options.intra_op_threads:
            with suppress(RuntimeError):  # TensorFlow already runs in this process and keeps its threads
                tf.config.threading.set_intra_op_parallelism_threads(threads)

    def _load(self, path: Path) -> LoadedModel:
        meta_graph = serving_graph(path)
        needed = needed_libraries(meta_graph)
        check_operations(meta_graph, self._allowed_operations)
        load_needed(needed, model_name(path))
        if reason := why_session(meta_graph):
            return self._in_session(path, meta_graph, reason)
        try:
            return self._as_functions(path, meta_graph)
        except Exception as error:
            if is_passing(error) or is_no_memory(error):
                raise
            drop_frames(error)  # they hold loaded parts of the model
            failure = error
        return self._after_failure(path, meta_graph, failure)

    def _as_functions(self, path: Path, meta_graph: Any) -> LoadedModel:
        if devices := self._named_devices(path, meta_graph):
            return self._saved_model(path, meta_graph, devices=devices)
        if len(self.devices) == 1:
            return self._saved_model(path, meta_graph)
        names = [f"/device:{device}" for device in self.devices]
        first = self._saved_model(path, meta_graph, names[0])
        if reason := first.why_one_replica():
            self._tell_one_replica(path, reason)
            return first
        return Replicas([first, *[self._saved_model(path, meta_graph, name) for name in names[1:]]])

    def _in_session(self, path: Path, meta_graph: Any, reason: str) -> LoadedModel:
        model = SessionModel(path, meta_graph, tf32=self._tf32, note=f"it runs in a session, as {reason}")
        if len(self.devices) > 1:
            self._tell_one_replica(path, "it is executed in a session of TensorFlow 1")
        return model

    def _after_failure(self, path: Path, meta_graph: Any, failure: Exception) -> LoadedModel:
        """The model in a session, since tf.saved_model.load failed. Raises this failure if a session fails, too."""
        gc.collect()  # frees the loaded parts
        try:
            reason = f"tf.saved_model.load failed: {first_meaningful_line(failure)}"
            return self._in_session(path, meta_graph, reason)
        except Exception as second:  # whatever TensorFlow raises
            logger.info("%s cannot run in a session either: %s", model_name(path), first_meaningful_line(second))
        raise failure

    def _saved_model(
        self, path: Path, meta_graph: Any, device: str | None = None, devices: Sequence[str] = ()
    ) -> SavedModel:
        return SavedModel(path, self._variants, self._kind, device, meta_graph, devices=devices, tf32=self._tf32)

    def _named_devices(self, path: Path, meta_graph: Any) -> Sequence[str]:
        """The devices of this machine that the graph names, if there are several; the log names them."""
        named = named_devices(meta_graph)
        if len(named) < 2:
            return ()
        found = {device.name.removeprefix("/device:") for device in tf.config.list_logical_devices()}
        model, here = model_name(path), [device for device in named if device in found]
        if missing := [device for device in named if device not in found]:
            logger.warning(
                "%s names devices that TensorFlow does not see: %s; it sees %s and puts on these what belongs there",
                model, ", ".join(missing), ", ".join(sorted(found)),
            )  # fmt: skip
        if len(here) < 2:
            return ()
        logger.info("%s lies on %s, as its graph says: it runs plain, and has one replica", model, ", ".join(here))
        return here

    def _tell_one_replica(self, path: Path, reason: str) -> None:
        logger.warning("%s has one replica, on %s, because %s", model_name(path), self.devices[0], reason)


def _choose(kind: str, replicas: int) -> tuple[str, ...]:
    """The first devices of this kind, as many as `replicas`; for 0 all GPUs, or the first CPU."""
    if replicas == 1:
        return (f"{kind}:0",)
    found = [device.name.removeprefix("/device:") for device in tf.config.list_logical_devices(kind)]
    if replicas > len(found):
        devices = f"{len(found)} {kind}{'s' if len(found) > 1 else ''}"
        raise InvalidRequest(f"replicas is {replicas}, but should be at most {len(found)}: TensorFlow sees {devices}")
    return tuple(found[:replicas] if replicas else found if kind == "GPU" else found[:1])


def _kind(gpus: Sequence[Any]) -> str:
    """The kind of processor. Remembered execution variants belong to one kind, and to TF32 or not."""
    if not gpus:
        return platform.processor() or "CPU"
    return str(tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU"))


def computes_in_tf32(gpus: Sequence[Any]) -> bool:
    """Whether these GPUs, if there are any, compute products of float32 in TF32: from compute capability 8.0 on."""
    if not tf.config.experimental.tensor_float_32_execution_enabled() or os.environ.get("NVIDIA_TF32_OVERRIDE") == "0":
        return False
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    return any(each.get("compute_capability", (0, 0)) >= (8, 0) for each in details)


def _set_threads(setting: str, threads: int, set_threads: Callable[[int], None]) -> None:
    """Set a number of threads; 0 changes nothing. Raises RuntimeError: TensorFlow already runs with another one."""
    if threads == 0:
        return
    try:
        set_threads(threads)
    except RuntimeError as error:
        raise RuntimeError(
            f"{setting} cannot be set to {threads}: TensorFlow already runs in this process with another number"
        ) from error
