"""The RaggedTensors of a signature, found among its tensors.

A SignatureDef marks an output that is a RaggedTensor and lists its parts. It does not mark inputs: values and row
splits are listed like other tensors, named `x`, `x_1`, `x_2`. Names and types of these, and the arguments of the
function (saved_arguments.py), together identify the inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from app.runtimes.tensorflow.private_api import TypeSpecProto
from app.runtimes.tensorflow.saved_model.saved_arguments import saved_arguments


def ragged_inputs(meta_graph: Any, definition: Any) -> dict[str, tuple[str, ...]]:
    """The names of the row splits, outermost first, by the name of the values; empty if no input is ragged."""
    specs = saved_arguments(meta_graph, definition, TypeSpecProto.RAGGED_TENSOR_SPEC)
    arguments = []
    for spec in specs:
        _, dtype, rank, splits_dtype = spec.type_state.tuple_value.values
        arguments.append((rank.int64_value, dtype.tensor_dtype_value, splits_dtype.tensor_dtype_value))
    found: dict[str, tuple[str, ...]] = {}
    for argument in sorted(arguments, reverse=True):
        names = next((names for names in _candidates(definition.inputs, *argument) if names[0] not in found), None)
        if names is None:
            return {}
        found[names[0]] = names[1:]
    return found


def ragged_outputs(definition: Any) -> dict[str, tuple[str, ...]]:
    """The names of the row splits of outputs, in the form of inputs: `y_1`, `y_2`."""
    return {
        name: tuple(f"{name}_{number}" for number in range(1, len(tensor.composite_tensor.components)))
        for name, tensor in definition.outputs.items()
        if is_ragged(tensor)
    }


def is_ragged(tensor: Any) -> bool:
    """Whether a TensorInfo is a RaggedTensor: values, and at least one tensor of row splits."""
    composite = tensor.composite_tensor
    return composite.type_spec.type_spec_class == TypeSpecProto.RAGGED_TENSOR_SPEC and len(composite.components) > 1


def _candidates(
    inputs: Mapping[str, Any], ragged_rank: int, dtype: int, splits_dtype: int
) -> Iterator[tuple[str, ...]]:
    for name in sorted(inputs):
        splits = [f"{name}_{number}" for number in range(1, ragged_rank + 1)]
        if inputs[name].dtype == dtype and all(
            each in inputs and inputs[each].dtype == splits_dtype and len(inputs[each].tensor_shape.dim) == 1
            for each in splits
        ):
            yield name, *splits
