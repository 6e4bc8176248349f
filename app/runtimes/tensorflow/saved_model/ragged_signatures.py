"""Finds which tensors of a signature are the parts of one RaggedTensor.

A SignatureDef marks an output that is a RaggedTensor and lists its parts. It does not mark inputs: values and row
splits are listed like other tensors, named `x`, `x_1`, `x_2`. But the function that the signature calls was saved with
its own arguments, and these say which are ragged. Names and types of both together identify the inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from app.runtimes.tensorflow.private_api import TypeSpecProto


class _RaggedArgument(NamedTuple):
    ragged_rank: int
    dtype: int
    splits_dtype: int


def ragged_inputs(meta_graph: Any, definition: Any) -> dict[str, tuple[str, ...]]:
    """The names of the row splits, outermost first, by the name of the values; empty if no input is ragged."""
    found: dict[str, tuple[str, ...]] = {}
    for argument in sorted(_ragged_arguments(meta_graph, definition), reverse=True):
        names = next((names for names in _candidates(definition.inputs, argument) if names[0] not in found), None)
        if names is None:
            return {}
        found[names[0]] = names[1:]
    return found


def ragged_outputs(definition: Any) -> dict[str, tuple[str, ...]]:
    """The same for outputs. Their row splits get names like those of inputs: `y_1`, `y_2`."""
    return {
        name: tuple(f"{name}_{number}" for number in range(1, len(tensor.composite_tensor.components)))
        for name, tensor in definition.outputs.items()
        if is_ragged(tensor)
    }


def is_ragged(tensor: Any) -> bool:
    """Is this TensorInfo a RaggedTensor: values, and at least one tensor of row splits?"""
    composite = tensor.composite_tensor
    return composite.type_spec.type_spec_class == TypeSpecProto.RAGGED_TENSOR_SPEC and len(composite.components) > 1


def _candidates(inputs: Mapping[str, Any], argument: _RaggedArgument) -> Iterator[tuple[str, ...]]:
    for name in sorted(inputs):
        splits = [f"{name}_{number}" for number in range(1, argument.ragged_rank + 1)]
        if inputs[name].dtype == argument.dtype and all(
            each in inputs and inputs[each].dtype == argument.splits_dtype and len(inputs[each].tensor_shape.dim) == 1
            for each in splits
        ):
            yield name, *splits


def _ragged_arguments(meta_graph: Any, definition: Any) -> list[_RaggedArgument]:
    """The ragged arguments of the saved function that the signature calls."""
    functions = meta_graph.object_graph_def.concrete_functions
    bodies = {function.signature.name: function.node_def for function in meta_graph.graph_def.library.function}
    nodes = {tensor.name.partition(":")[0] for tensor in definition.outputs.values()}
    calls = _called(node for node in meta_graph.graph_def.node if node.name in nodes)
    called = [inner for name in calls for inner in (name, *_called(bodies.get(name, ())))]
    found: dict[str, list[_RaggedArgument]] = {
        name: list(_ragged(functions[name].canonicalized_input_signature)) for name in called if name in functions
    }
    return next((arguments for arguments in found.values() if arguments), [])


def _called(nodes: Any) -> list[str]:
    return [node.attr["f"].func.name for node in nodes if "f" in node.attr]


def _ragged(value: Any) -> Iterator[_RaggedArgument]:
    """All ragged arguments in a structure of arguments."""
    kind = value.WhichOneof("kind")
    if kind == "type_spec_value" and value.type_spec_value.type_spec_class == TypeSpecProto.RAGGED_TENSOR_SPEC:
        _, dtype, rank, splits_dtype = value.type_spec_value.type_state.tuple_value.values
        yield _RaggedArgument(rank.int64_value, dtype.tensor_dtype_value, splits_dtype.tensor_dtype_value)
    elif kind in {"tuple_value", "list_value"}:
        for each in getattr(value, kind).values:
            yield from _ragged(each)
    elif kind == "dict_value":
        for each in value.dict_value.fields.values():
            yield from _ragged(each)
