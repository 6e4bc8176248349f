"""The SparseTensors among the inputs of a signature: `x` is the indices, `x_1` the values, `x_2` the shape.

A SignatureDef does not tell them; names and types, and the arguments of the function (saved_arguments.py), do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from app.core.inference import Dimension, SparseParts
from app.runtimes.tensorflow.graph_nodes import sizes_of
from app.runtimes.tensorflow.private_api import TypeSpecProto
from app.runtimes.tensorflow.saved_model.saved_arguments import arguments_of_one_name, saved_arguments

_INDEX = tf.int64.as_datatype_enum


class _SparseArgument(NamedTuple):
    """An argument of the function. sizes: all declared sizes, the rows first; None if the rank is not declared."""

    dtype: int
    sizes: tuple[Dimension, ...] | None


def sparse_inputs(meta_graph: Any, definition: Any) -> Mapping[SparseParts, tuple[Dimension, ...]]:
    """The SparseTensors among the inputs, and the declared sizes of each beside its rows; empty without a rank."""
    arguments = list(_arguments(meta_graph, definition))
    found = {}
    for name in sorted(definition.inputs):
        parts = SparseParts(name, f"{name}_1", f"{name}_2")
        alike = [each for each in arguments if _fits(definition.inputs, parts, each)]
        if alike:
            found[parts] = _declared(alike)
    return found


def _arguments(meta_graph: Any, definition: Any) -> Iterator[_SparseArgument]:
    """The arguments of the saved function; if it has none, groups of three tensors of one name."""
    specs = saved_arguments(meta_graph, definition, TypeSpecProto.SPARSE_TENSOR_SPEC)
    for spec in specs:
        shape, dtype = spec.type_state.tuple_value.values
        yield _SparseArgument(dtype.tensor_dtype_value, sizes_of(shape.tensor_shape_value))
    for tensors in () if specs else arguments_of_one_name(meta_graph, definition, 3):
        (index_type, indices), (dtype, values), (shape_type, shape) = tensors
        if index_type == shape_type == _INDEX and len(indices) == 2 and len(values) == 1 and shape == indices[1:]:
            yield _SparseArgument(dtype, (None,) * (shape[0] or 0) or None)


def _fits(inputs: Any, parts: SparseParts, argument: _SparseArgument) -> bool:
    if any(name not in inputs for name in parts):
        return False
    indices, values, shape = (inputs[name] for name in parts)
    ranks = [len(tensor.tensor_shape.dim) for tensor in (indices, values, shape)]
    rank = shape.tensor_shape.dim[0].size if ranks == [2, 1, 1] else 0
    types_fit = indices.dtype == shape.dtype == _INDEX and values.dtype == argument.dtype
    return types_fit and ranks == [2, 1, 1] and (argument.sizes is None or rank in {-1, len(argument.sizes)})


def _declared(arguments: list[_SparseArgument]) -> tuple[Dimension, ...]:
    """The sizes on which all arguments that fit the input agree; None for others."""
    sizes = {each.sizes for each in arguments}
    if None in sizes or len({len(each) for each in sizes if each is not None}) != 1:
        return ()
    columns = zip(*[each for each in sizes if each is not None], strict=True)
    return tuple([column[0] if len(set(column)) == 1 else None for column in columns][1:])
