"""The SignatureDefs of a SavedModel as ModelSignatures.

They are read from saved_model.pb, because the loaded functions do not keep the names of tensors and methods.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.inference import Array, ModelSignature, TensorSpec
from app.runtimes.tensorflow.execution.operations import has_references
from app.runtimes.tensorflow.graph_nodes import sizes_of
from app.runtimes.tensorflow.graph_part import needed_nodes, tensors_of
from app.runtimes.tensorflow.private_api import SavedModelProto
from app.runtimes.tensorflow.saved_model.ragged_signatures import is_ragged, ragged_inputs, ragged_outputs
from app.runtimes.tensorflow.saved_model.sparse_signatures import sparse_inputs

logger = logging.getLogger(__name__)

TAGS = frozenset({"serve"})

# Signatures that run at load time or in training, not for callers.
_NOT_FOR_CALLERS = frozenset({"__saved_model_init_op", "__saved_model_train_op"})

# Types without a numpy form: handles into the process. Quantized numbers have one, but requests do not carry them.
_NOT_ARRAYS = frozenset({tf.resource, tf.variant})
_QUANTIZED = frozenset({tf.qint8, tf.quint8, tf.qint16, tf.quint16, tf.qint32})


def why_session(meta_graph: Any) -> str:
    """The reason why a MetaGraphDef needs a session; empty if functions can execute it.

    A MetaGraphDef of TensorFlow 1 needs a session in three cases.
    - It has references to variables, or to tables (before TensorFlow 1.0).
    - It does not say the types of its inputs and outputs, as exports before TensorFlow 1.0.
    - A signature lacks an input, such as a flag for training.
    """
    if meta_graph.HasField("object_graph_def"):
        return ""
    if has_references(meta_graph.graph_def):
        return "its graph has references to variables or tables"
    if any(not info.dtype for info in _tensors(meta_graph)):
        return "it does not say the types of its inputs and outputs"
    return "a signature lacks an input that its outputs need" if any(_lacks_input(meta_graph)) else ""


def _lacks_input(meta_graph: Any) -> Iterator[bool]:
    """For each signature that callers may name, whether it needs a placeholder that is not among its inputs."""
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    for name, definition in meta_graph.signature_def.items():
        if name not in _NOT_FOR_CALLERS:
            outputs, inputs = (
                [name for info in infos.values() for name in tensors_of(info)]
                for infos in (definition.outputs, definition.inputs)
            )
            yield any(nodes[each].op == "Placeholder" for each in needed_nodes(nodes, outputs, inputs))


def with_types_of(graph: Any, meta_graph: Any) -> Any:
    """The MetaGraphDef, with types of the loaded tf.Graph for inputs and outputs that have none."""
    for info in _tensors(meta_graph):
        if not info.dtype:
            tensor = graph.get_tensor_by_name(info.name)
            info.dtype = tensor.dtype.base_dtype.as_datatype_enum
            info.tensor_shape.CopyFrom(tensor.shape.as_proto())
    return meta_graph


def _tensors(meta_graph: Any) -> Iterator[Any]:
    """The TensorInfos of inputs and outputs for callers that are single tensors."""
    for name, definition in meta_graph.signature_def.items():
        if name not in _NOT_FOR_CALLERS:
            for info in (*definition.inputs.values(), *definition.outputs.values()):
                if info.WhichOneof("encoding") == "name":
                    yield info


def read_signatures(meta_graph: Any, model: str) -> dict[str, ModelSignature]:
    """The signatures of a MetaGraphDef that can be called with arrays.

    Args:
        model: the name of the model in the log.

    Raises:
        ValueError: no signature can be called; the text says why.
    """
    definitions = meta_graph.signature_def
    signatures, reasons = {}, list[str]()
    for name in sorted(set(definitions) - _NOT_FOR_CALLERS):
        # 1. A signature that cannot be called is left out, and logged.
        definition = definitions[name]
        if reason := _not_servable(definition):
            reasons.append(f"{name!r}, because {reason}")
            logger.warning("signature %r of %s is left out, because %s", name, model, reason)
        else:
            # 2. Ragged and sparse inputs are one input for callers, but several tensors.
            inputs, ragged = _specs(definition.inputs), ragged_inputs(meta_graph, definition)
            sparse = sparse_inputs(meta_graph, definition)
            signatures[name] = ModelSignature(
                name,
                inputs,
                _specs(definition.outputs),
                definition.method_name,
                ragged,
                defaults={} if ragged else _defaults(name, definition, inputs),
                ragged_outputs=ragged_outputs(definition),
                sparse=tuple(sparse),
                sparse_sizes={names.indices: sizes for names, sizes in sparse.items()},
            )

    # 3. A model whose signatures are all left out fails to load.
    if reasons and not signatures:
        raise ValueError(f"none of its signatures can be called: not {'; not '.join(reasons)}")
    return signatures


def serving_graph(path: Path) -> Any:
    """The MetaGraphDef of the 'serve' graph in folder `path`.

    Raises:
        OSError, ValueError: there is no such file or no such graph; the text says which.
        google.protobuf.message.DecodeError: the file is not a SavedModel.
    """
    file = path / "saved_model.pb"
    if not file.is_file():
        raise FileNotFoundError("there is no saved_model.pb")
    graphs = SavedModelProto.FromString(file.read_bytes()).meta_graphs
    for graph in graphs:
        if frozenset(graph.meta_info_def.tags) == TAGS:
            return graph
    found = ", ".join(str(sorted(graph.meta_info_def.tags)) for graph in graphs) or "none"
    raise ValueError(f"saved_model.pb has no graph tagged 'serve'; its graphs are tagged: {found}")


def _not_servable(definition: Any) -> str:
    """The reason why a signature cannot be called with arrays; empty if it can."""
    for kind, tensors in (("input", definition.inputs), ("output", definition.outputs)):
        for name, tensor in _parts(tensors).items():
            if tensor.WhichOneof("encoding") != "name":
                return f"{kind} {name!r} is not a dense tensor"
            if tf.as_dtype(tensor.dtype) in (_NOT_ARRAYS if kind == "output" else _NOT_ARRAYS | _QUANTIZED):
                return f"{kind} {name!r} of type {tf.as_dtype(tensor.dtype).name} has no array type"
    if taken := definition.outputs.keys() & {name for names in ragged_outputs(definition).values() for name in names}:
        return f"output {min(taken)!r} has the same name as row splits of another output"
    return ""


def _parts(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors by name. A RaggedTensor `x` becomes its values, `x`, and its row splits, `x_1`, `x_2`."""
    parts: dict[str, Any] = {}
    for name, tensor in tensors.items():
        if is_ragged(tensor):
            values, *splits = tensor.composite_tensor.components
            parts |= {name: values, **{f"{name}_{number}": each for number, each in enumerate(splits, 1)}}
        else:
            parts[name] = tensor
    return parts


def _specs(tensors: Any) -> dict[str, TensorSpec]:
    return {
        name: TensorSpec(
            name, np.dtype(tf.as_dtype(tensor.dtype).as_numpy_dtype), sizes_of(tensor.tensor_shape), tensor.name
        )
        for name, tensor in sorted(_parts(tensors).items())
    }


def _defaults(signature: str, definition: Any, inputs: Mapping[str, TensorSpec]) -> dict[str, Array]:
    """The default values of inputs; values of other types than their inputs are left out, with a warning."""
    found: dict[str, Array] = {}
    for name, proto in sorted(definition.defaults.items()):
        spec = inputs.get(name)
        if spec is None or _dtype(proto) != spec.dtype:
            logger.warning("The default value of %r in signature %r is not used: expected %s", name, signature, spec)
        else:
            found[name] = np.asarray(tf.make_ndarray(proto), spec.dtype)
    return found


def _dtype(tensor: Any) -> Any:
    return np.dtype(tf.as_dtype(tensor.dtype).as_numpy_dtype)
