"""The inputs and outputs of a model of Keras: names, types and shapes, and their way into its structures and out.

Ragged and sparse inputs come as several arrays, as a SavedModel has them: `x`, `x_1`, ... are values and row splits of
a ragged one, indices, values and shape of a sparse one.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.inference import Array
from app.importing.formats.keras_parts.libraries import Library
from app.importing.order import CannotImport

#: A place in a structure: keys of mappings, numbers of lists.
_Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class KerasInput:
    """One input.

    shape: None for a free size; None as a whole where the rank is unknown. kind: 'dense', 'ragged' or 'sparse'.
    """

    name: str
    shape: tuple[int | None, ...] | None
    dtype: tf.DType
    kind: str = "dense"
    ragged_rank: int = 1

    @property
    def spec(self) -> Any:
        """The type of the input in TensorFlow."""
        if self.kind == "ragged":
            return tf.RaggedTensorSpec(self.shape, self.dtype, self.ragged_rank)
        if self.kind == "sparse":
            return tf.SparseTensorSpec(self.shape, self.dtype)
        return tf.TensorSpec(self.shape, self.dtype, self.name)

    def of(self, arrays: Mapping[str, Array]) -> Any:
        """The tensor that the input's arrays make."""
        if self.kind == "ragged":
            splits = [arrays[f"{self.name}_{number}"] for number in range(1, self.ragged_rank + 1)]
            return tf.RaggedTensor.from_nested_row_splits(self._tensor(arrays[self.name]), splits)
        if self.kind == "sparse":
            indices, values, shape = (arrays[name] for name in (self.name, f"{self.name}_1", f"{self.name}_2"))
            return tf.SparseTensor(indices, self._tensor(values), shape)
        return self._tensor(arrays[self.name])

    def _tensor(self, array: Array) -> Any:
        return tf.convert_to_tensor(array, self.dtype)


class KerasSignature:
    """What a model takes and gives."""

    def __init__(self, model: Any, library: Library) -> None:
        """Raises CannotImport: the model does not say what it takes."""
        self._structure, self.inputs = _inputs(model, library)
        self._outputs = _outputs(model)

    def arguments(self, tensors: Mapping[str, Any]) -> Any:
        """Tensors by the names of inputs, as the model's structure."""
        return tf.nest.pack_sequence_as(self._structure, [tensors[each.name] for each in self.inputs])

    def arguments_of(self, arrays: Mapping[str, Array]) -> Any:
        """Arrays by the names of a SavedModel's tensors, as the model's structure."""
        return self.arguments({each.name: each.of(arrays) for each in self.inputs})

    def outputs_by_name(self, outputs: Any) -> dict[str, Any]:
        """The tensors of the model's structure by the names of outputs. A sparse one becomes dense."""
        leaves = list(_leaves(outputs))
        names = self._outputs if len(self._outputs) == len(leaves) else _names([(place, "") for place, _ in leaves])
        values = [tensor for _, tensor in leaves]
        return {
            name: tf.sparse.to_dense(value) if isinstance(value, tf.SparseTensor) else value
            for name, value in zip(names, values, strict=True)
        }

    def arrays_by_name(self, outputs: Any) -> dict[str, Array]:
        """As `outputs_by_name`, in arrays: a ragged output becomes values and row splits."""
        arrays: dict[str, Array] = {}
        for name, tensor in self.outputs_by_name(outputs).items():
            if isinstance(tensor, tf.RaggedTensor):
                arrays[name] = _array(tensor.flat_values)
                splits = enumerate(tensor.nested_row_splits, 1)
                arrays |= {f"{name}_{number}": _array(each) for number, each in splits}
            else:
                arrays[name] = _array(tensor)
        return arrays


def _array(tensor: Any) -> Array:
    return np.asarray(tensor.numpy() if hasattr(tensor, "numpy") else tensor)


# --- inputs ---


def _inputs(model: Any, library: Library) -> tuple[Any, list[KerasInput]]:
    if not getattr(model, "inputs", None):
        return _inputs_of_subclass(model)
    structure = _symbolic(model, "input")
    leaves = list(_leaves(structure))
    layers = {id(layer.output): layer.name for layer in model.layers if type(layer).__name__ == "InputLayer"}
    layer_names = model.input_names if library.is_tf_keras else [layers.get(id(leaf), leaf.name) for _, leaf in leaves]
    if len(layer_names) != len(leaves):
        layer_names = [""] * len(leaves)
    names = _names([(place, str(name)) for (place, _), name in zip(leaves, layer_names, strict=True)])
    return structure, [_input(name, tensor) for name, (_, tensor) in zip(names, leaves, strict=True)]


def _input(name: str, tensor: Any) -> KerasInput:
    shape = None if tensor.shape is None else tuple(tensor.shape)
    found = KerasInput(name, shape, tf.as_dtype(tensor.dtype))
    spec = getattr(tensor, "type_spec", None)
    if isinstance(spec, tf.RaggedTensorSpec):
        return replace(found, kind="ragged", ragged_rank=int(spec.ragged_rank))
    if isinstance(spec, tf.SparseTensorSpec) or getattr(tensor, "sparse", False) is True:
        return replace(found, kind="sparse")
    if getattr(tensor, "ragged", False) is True:
        return replace(found, kind="ragged", ragged_rank=int(getattr(tensor, "ragged_rank", None) or 1))
    return found


def _inputs_of_subclass(model: Any) -> tuple[Any, list[KerasInput]]:
    """The inputs of a model that was not made of layers' tensors, from the shapes with which it was built."""
    get_config = getattr(model, "get_build_config", None)
    built: Any = (get_config() if get_config else None) or {}
    shape = built.get("input_shape")
    if shape is None:
        raise CannotImport(
            "the model is a class of its own that does not say what it takes; export it where its code is "
            "(docs/export-from-memory.md)"
        )
    dtype = tf.as_dtype(getattr(model, "input_dtype", None) or "float32")
    parameters = [name for name in inspect.signature(model.call).parameters if name != "self"]
    leaf: Any = shape if isinstance(shape, dict) else [shape]
    named = leaf.items() if isinstance(leaf, dict) else [(parameters[0] if parameters else "inputs", shape)]
    found = [KerasInput(str(name), (None, *tuple(sizes)[1:]), dtype) for name, sizes in sorted(named)]
    structure = {each.name: 0 for each in found} if isinstance(shape, dict) else 0
    return structure, found


# --- outputs ---


def _outputs(model: Any) -> Sequence[str]:
    """The names of the outputs, in the order of `_leaves`; empty where the model does not tell before it is called."""
    if not getattr(model, "outputs", None):
        return ()
    leaves = list(_leaves(_symbolic(model, "output")))
    layers = getattr(model, "output_names", None) or [model.layers[-1].name]
    names = [str(name) for name in layers]
    if len(names) != len(leaves):
        names = [""] * len(leaves)
    order = {id(tensor): name for tensor, name in zip(model.outputs, names, strict=False)}
    return _names([(place, order.get(id(tensor), name)) for (place, tensor), name in zip(leaves, names, strict=True)])


def _symbolic(model: Any, which: str) -> Any:
    """The structure of a model's symbolic inputs or outputs. A Sequential of Keras 3 has one, and no structure."""
    listed = getattr(model, f"{which}s")
    return (
        listed[0]
        if isinstance(listed, list) and len(listed) == 1 and not _structured(model, which)
        else getattr(model, which)
    )


def _structured(model: Any, which: str) -> bool:
    try:
        return isinstance(getattr(model, which), list | tuple | Mapping)
    except AttributeError:
        return False


def _leaves(structure: Any, place: _Place = ()) -> Iterator[tuple[_Place, Any]]:
    """The tensors of a structure with their places, in the order of TensorFlow's structures: keys are sorted."""
    if isinstance(structure, Mapping):
        for key in sorted(structure):
            yield from _leaves(structure[key], (*place, str(key)))
    elif isinstance(structure, list | tuple):
        for number, each in enumerate(structure):
            yield from _leaves(each, (*place, number))
    else:
        yield place, structure


def _names(found: Sequence[tuple[_Place, str]]) -> list[str]:
    """A name for each: its key in a mapping, else its layer's, else its place; numbered where names would be equal."""
    names: list[str] = []
    for place, layer in found:
        key = place[-1] if place and isinstance(place[-1], str) else layer
        name = key or "_".join(["output", *(str(part) for part in place)])
        same = sum(1 for each in names if each == name or each.startswith(f"{name}_"))
        names.append(name if name not in names else f"{name}_{same}")
    return names
