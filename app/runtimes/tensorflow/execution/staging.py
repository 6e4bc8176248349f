"""Input tensors in memory that numpy writes: a call copies its inputs once and makes no tensors.

Rules
- One call at a time uses a Staging. It is filled again only when that call is over and its outputs are copied,
  because an output may be the memory of an input.
- Its shapes are fixed, so that filling it overwrites all values of the call before.
- A graph that keeps state may keep an input as well: each of its calls needs a new Staging.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.inference import Array

#: The alignment in bytes that kernels of TensorFlow and XLA rely on.
_ALIGNMENT = 64

#: The shape of each input of a signature, in the order of their names.
InputShapes = tuple[tuple[int, ...], ...]


class Staging:
    """The tensors for inputs of these names, types and shapes, in this order.

    arrays: for executors of arrays: these take the place of the tensors, and strings stay as they are.
    """

    def __init__(self, inputs: Iterable[tuple[str, np.dtype[Any], tuple[int, ...]]], *, arrays: bool = False) -> None:
        self._tensors: list[Any] = []
        self._arrays: list[tuple[str, Array]] = []
        self._made_per_call: list[tuple[int, str, Any]] = []
        for index, (name, dtype, shape) in enumerate(inputs):
            if not dtype.hasobject if arrays else can_share(dtype):
                array = aligned_array(shape, dtype)
                self._arrays.append((name, array))
                self._tensors.append(array if arrays else _tensor_over(array))
            else:
                self._made_per_call.append((index, name, None if arrays else tf.as_dtype(dtype)))
                self._tensors.append(None)

    def fill(self, inputs: Mapping[str, Array]) -> Sequence[Any]:
        """The tensors, filled with these values.

        Raises:
            TypeError, ValueError: an array's type or shape does not fit.
        """
        for name, array in self._arrays:
            np.copyto(array, inputs[name])
        if not self._made_per_call:
            return self._tensors
        tensors = self._tensors.copy()
        for index, name, dtype in self._made_per_call:
            tensors[index] = inputs[name] if dtype is None else tf.constant(inputs[name], dtype)
        return tensors


@cache
def can_share(dtype: np.dtype[Any]) -> bool:
    """Whether a tensor of this type can lie in numpy's memory. Strings and bfloat16 cannot."""
    if dtype.hasobject:
        return False
    array = aligned_array((2,), dtype)
    array[...] = 0
    try:
        tensor = _tensor_over(array)
    except Exception:  # numpy and TensorFlow raise various errors for types that they do not exchange
        return False
    array[...] = 1
    return bool(tensor.dtype == tf.as_dtype(dtype) and (tensor.numpy() == array).all())


def aligned_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array of undefined values whose memory is aligned as TensorFlow's kernels need it."""
    memory = np.empty(prod(shape) * dtype.itemsize + _ALIGNMENT, np.uint8)
    array: Array = np.ndarray(shape, dtype, memory.data, -memory.ctypes.data % _ALIGNMENT)
    return array


def _tensor_over(array: Array) -> Any:
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
