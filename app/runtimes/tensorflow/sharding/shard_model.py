"""The command's work: a SavedModel becomes one with large dense layers split over devices, proven to answer alike."""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.agreement import TOLERANCES, agree
from app.core.inference import Array, ModelSignature
from app.core.values.sample_inputs import random_inputs
from app.runtimes.call_names import listed
from app.runtimes.tensorflow import private_api
from app.runtimes.tensorflow.error_mapping import first_meaningful_line
from app.runtimes.tensorflow.execution.graph_inlining import InlinedGraph
from app.runtimes.tensorflow.execution.signature_function import SignatureFunction
from app.runtimes.tensorflow.operation_libraries.needed import load_named, load_needed, needed_libraries
from app.runtimes.tensorflow.saved_model.named_devices import named_devices
from app.runtimes.tensorflow.saved_model.operation_check import check_operations
from app.runtimes.tensorflow.saved_model.saved_model import SAVE_DEVICES, SavedModel
from app.runtimes.tensorflow.saved_model.signature_defs import (
    TAGS,
    read_signatures,
    serving_graph,
    why_session,
)
from app.runtimes.tensorflow.sharding.graph_sharding import CannotShard, GraphSharding, SplitLayer, VariablePart

#: The rows of the calls that prove that both models answer alike. Chosen: one, few, many.
PROOF_ROWS = (1, 3, 64)

#: The largest difference of answers, relative to the largest value. Coarser types have other tolerances.
PROOF_TOLERANCE = 1e-5

_HOST = "/device:CPU:0"


@dataclass(frozen=True, slots=True)
class ShardOptions:
    """The layers to split, and the devices.

    devices: in TensorFlow's names, such as 'GPU:0'.
    min_mb: dense layers with fewer megabytes of weights stay whole.
    """

    devices: Sequence[str]
    signature: str = "serving_default"
    min_mb: float = 1.0
    allowed_operations: Sequence[str] = ()
    operation_libraries: Sequence[str] = ()


def find_devices(kind: str, count: int) -> Sequence[str]:
    """The first `count` devices of a kind. To be called before TensorFlow runs: one CPU can then be used as several.

    Raises CannotShard: there are fewer.
    """
    with suppress(RuntimeError):  # TensorFlow runs already, with the devices that it has
        if kind == "CPU":
            cpu = tf.config.list_physical_devices("CPU")[0]
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
    found = [device.name.removeprefix("/device:") for device in tf.config.list_logical_devices(kind)]
    if len(found) < count:
        raise CannotShard(
            f"--devices is {count}, but TensorFlow sees {len(found)} of kind {kind}; expected at most that"
        )
    return found[:count]


def shard_model(path: Path, out: Path, options: ShardOptions) -> Sequence[SplitLayer]:
    """Write into folder `out` the SavedModel of folder `path`, with one signature and its large layers split.

    Returns: the layers that were split.

    Raises:
        CannotShard: it cannot be loaded or split, or does not answer alike; nothing is written.
    """
    if out.exists():
        raise CannotShard(f"{out} exists already; expected a folder that does not")
    try:
        return _shard(path, out, options)
    except CannotShard:
        raise
    except Exception as error:  # whatever TensorFlow raises
        raise CannotShard(f"{path} cannot be split: {first_meaningful_line(error)}") from error


def _shard(path: Path, out: Path, options: ShardOptions) -> Sequence[SplitLayer]:
    # 1. The original, in main memory: one device may have no room for it.
    load_named(options.operation_libraries)
    meta_graph = serving_graph(path)
    needed = needed_libraries(meta_graph)
    check_operations(meta_graph, options.allowed_operations)
    load_needed(needed, str(path))
    signature = _signature(meta_graph, path, options)
    with tf.device(_HOST):
        loaded = tf.saved_model.load(str(path), tags=list(TAGS))
    original = SignatureFunction(signature, loaded.signatures[signature.name], _HOST)
    if faults := [*original.signature.writes, *original.signature.draws]:
        raise CannotShard(f"it writes state or draws random numbers: {', '.join(faults)}; expected neither")

    # 2. The split one.
    with _written(out) as folder:
        layers = _save_split(InlinedGraph(signature, original.plain), loaded, folder, options)
        gc.collect()  # frees the variables: the proof loads them again
        _prove(original, folder, options.devices)
    return layers


def _signature(meta_graph: Any, path: Path, options: ShardOptions) -> ModelSignature:
    """The signature to split. Raises CannotShard for a model that would lose something."""
    if why_session(meta_graph):
        raise CannotShard("it is a model of TensorFlow 1 that needs a session; expected one of TensorFlow 2")
    if others := [each for each in named_devices(meta_graph) if each != "CPU:0"]:
        raise CannotShard(f"its graph names devices already: {', '.join(others)}; expected none")
    signatures = read_signatures(meta_graph, path.name)
    signature = signatures.get(options.signature)
    if signature is None:
        raise CannotShard(f"it has no signature {options.signature!r}; expected one of {listed(signatures)}")
    if signature.ragged or signature.ragged_outputs or signature.sparse or signature.defaults:
        raise CannotShard("its signature has ragged or sparse tensors, or default values; expected dense ones without")
    return signature


def _save_split(inlined: InlinedGraph, loaded: Any, folder: Path, options: ShardOptions) -> Sequence[SplitLayer]:
    owners, devices = _owners(loaded), options.devices

    def value_of(placeholder: str) -> Array | None:
        owner = owners.get(id(inlined.handles.get(placeholder)))
        value: Array | None = owner.numpy() if isinstance(owner, tf.Variable) else None
        return value

    # 1. The graph.
    sharding = GraphSharding(inlined.graph, value_of, devices, options.min_mb * 2**20)
    if not sharding.layers:
        raise CannotShard(
            f"it has no dense layer (MatMul of a matrix of weights) of at least {options.min_mb:g} MB to split over "
            f"{len(devices)} devices; expected one, see --min-mb"
        )
    inlined.graph = sharding.graph

    # 2. Its resources: tables, variables that stay whole, parts of variables.
    module, needed = tf.Module(), inlined.borrowed()
    found = [owners.get(id(inlined.handles[name])) for name in needed]
    module.tables = [each for each in found if each is not None and not isinstance(each, tf.Variable)]
    values = {name: value_of(name) for name in needed}
    whole = [VariablePart(name, value, devices[0]) for name, value in values.items() if value is not None]
    module.whole, module.parts = _variables(inlined, whole), _variables(inlined, sharding.parts)

    # 3. The function.
    inputs = inlined.signature.inputs
    specs = {name: tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in inputs.items()}
    module.call = tf.function(inlined.outputs_of, input_signature=[specs], autograph=False)
    _save(module, folder, inlined.signature)
    return sharding.layers


def _variables(inlined: InlinedGraph, parts: Sequence[VariablePart]) -> list[Any]:
    """The variables of the parts, made on their devices and known to the graph."""
    made = []
    for part in parts:
        with tf.device(f"/device:{part.device}"):
            made.append(tf.Variable(part.value, trainable=False))
        inlined.handles[part.handle] = made[-1].handle
    return made


def _owners(loaded: Any) -> Mapping[int, Any]:
    """Variables and tables, by the id of their handle."""
    found = {}
    for each in tf.train.TrackableView(loaded).descendants():
        handle = getattr(each, "handle" if isinstance(each, tf.Variable) else "resource_handle", None)
        if handle is not None:
            found[id(handle)] = each
    return found


def _save(module: Any, folder: Path, signature: ModelSignature) -> None:
    options = tf.saved_model.SaveOptions(experimental_variable_policy=SAVE_DEVICES, experimental_custom_gradients=False)
    with private_api.quiet():
        signatures = {signature.name: module.call.get_concrete_function()}
        tf.saved_model.save(module, str(folder), signatures=signatures, options=options)


@contextmanager
def _written(out: Path) -> Iterator[Path]:
    """A folder that becomes `out` at the end of the block, unless it fails."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".shard-", dir=out.parent) as work:
        folder = Path(work) / "model"
        yield folder
        shutil.move(folder, out)


def _prove(original: SignatureFunction, folder: Path, devices: Sequence[str]) -> None:
    """Raises CannotShard unless the model in `folder` lies on the devices and answers as the original does."""
    meta_graph, signature = serving_graph(folder), original.signature
    if list(named_devices(meta_graph)) != list(devices):
        raise CannotShard(f"it would lie on {', '.join(named_devices(meta_graph))}; expected {', '.join(devices)}")
    made = SavedModel(folder, meta_graph=meta_graph, devices=devices)
    tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)  # its differences are larger than a proof allows
    try:
        split = made.signatures[signature.name]
        if split.inputs.keys() != signature.inputs.keys() or split.outputs.keys() != signature.outputs.keys():
            raise CannotShard(f"its inputs would be named {listed(split.inputs)}; expected {listed(signature.inputs)}")
        for inputs in _inputs(signature):
            expected, actual = original(inputs, ()), made.run(signature.name, inputs, ())
            if not agree(expected, actual, _TOLERANCES):
                raise CannotShard(f"the split model answers otherwise: more than {PROOF_TOLERANCE:g} apart")
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(tf32)
        made.close()


#: By type, the smaller tolerance of Ferry's and the proof's; Ferry's for coarse types.
_TOLERANCES = {name: min(each, PROOF_TOLERANCE) if each < 1e-3 else each for name, each in TOLERANCES.items()}


def _inputs(signature: ModelSignature) -> Iterator[dict[str, Array]]:
    """Random inputs: from 0 to 1, and of both signs."""
    for rows in PROOF_ROWS if signature.batchable else (1,):
        inputs = random_inputs(signature, rows)
        yield inputs
        yield {
            name: (2 * each - 1).astype(each.dtype) if np.issubdtype(each.dtype, np.floating) else each
            for name, each in inputs.items()
        }
