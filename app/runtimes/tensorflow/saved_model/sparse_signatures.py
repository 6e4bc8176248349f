"""Finds which inputs of a signature are the parts of one SparseTensor: `x` indices, `x_1` values, `x_2` the shape.

A SignatureDef does not say so; names and types, and the arguments of the function (saved_arguments.py), do.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from app.core.inference import SparseParts
from app.runtimes.tensorflow.private_api import TypeSpecProto
from app.runtimes.tensorflow.saved_model.saved_arguments import saved_arguments


def sparse_inputs(meta_graph: Any, definition: Any) -> tuple[SparseParts, ...]:
    """The SparseTensors among the inputs; empty if there is none."""
    arguments = saved_arguments(meta_graph, definition, TypeSpecProto.SPARSE_TENSOR_SPEC)
    dtypes = {argument.type_state.tuple_value.values[1].tensor_dtype_value for argument in arguments}
    all_parts = [SparseParts(name, f"{name}_1", f"{name}_2") for name in sorted(definition.inputs)]
    return tuple(parts for parts in all_parts if _fit(definition.inputs, parts, dtypes))


def _fit(inputs: Any, parts: SparseParts, dtypes: set[int]) -> bool:
    if not dtypes or any(name not in inputs for name in parts):
        return False
    indices, values, shape = (inputs[name] for name in parts)
    ranks = [len(tensor.tensor_shape.dim) for tensor in (indices, values, shape)]
    types_fit = indices.dtype == shape.dtype == tf.int64.as_datatype_enum and values.dtype in dtypes
    return types_fit and ranks == [2, 1, 1]
