"""Input tensors whose memory numpy writes: entering TensorFlow costs one copy, and no making of tensors.

Rules
- One call at a time uses a staging. It is filled again only when that call is over and its outputs are
  copied, for an output may be the very memory of an input.
- Its shapes are fixed, so filling it overwrites all that an earlier call left.
- A graph that keeps state may keep an input as well: it needs a new staging for each call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.inference import Array

#: Kernels of TensorFlow and XLA rely on it.
_ALIGNMENT = 64

#: The shape of each input of a signature, in the order of their names.
Shapes = tuple[tuple[int, ...], ...]


class Staging:
    """Tensors for inputs of these names, types and shapes, in their order."""

    def __init__(self, inputs: Iterable[tuple[str, np.dtype[Any], tuple[int, ...]]]) -> None:
        self._tensors: list[Any] = []
        self._arrays: list[tuple[str, Array]] = []
        self._made_anew: list[tuple[int, str, Any]] = []
        for place, (name, dtype, shape) in enumerate(inputs):
            if can_share(dtype):
                array = aligned_array(shape, dtype)
                self._arrays.append((name, array))
                self._tensors.append(_tensor_over(array))
            else:
                self._made_anew.append((place, name, tf.as_dtype(dtype)))
                self._tensors.append(None)

    def fill(self, inputs: Mapping[str, Array]) -> Sequence[Any]:
        """The tensors, with these values. Raises TypeError or ValueError where a type does not fit."""
        for name, array in self._arrays:
            np.copyto(array, inputs[name])
        if not self._made_anew:
            return self._tensors
        tensors = self._tensors.copy()
        for place, name, dtype in self._made_anew:
            tensors[place] = tf.constant(inputs[name], dtype)
        return tensors


@cache
def can_share(dtype: np.dtype[Any]) -> bool:
    """Can a tensor of this type lie in numpy's memory? Strings and bfloat16 cannot."""
    if dtype.hasobject:
        return False
    array = aligned_array((2,), dtype)
    array[...] = 0
    try:
        tensor = _tensor_over(array)
    except Exception:  # whatever numpy or TensorFlow has to say of a type that they do not exchange
        return False
    array[...] = 1
    return bool(tensor.dtype == tf.as_dtype(dtype) and (tensor.numpy() == array).all())


def aligned_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array of whatever lay there, where TensorFlow's kernels take it."""
    memory = np.empty(prod(shape) * dtype.itemsize + _ALIGNMENT, np.uint8)
    array: Array = np.ndarray(shape, dtype, memory.data, -memory.ctypes.data % _ALIGNMENT)
    return array


def _tensor_over(array: Array) -> Any:
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
