"""Prepared calls, of which all but the values is decided: the executor, the shapes, the wanted outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from app.core.inference import Array, ModelSignature
from app.runtimes.tensorflow.execution.executors import Executor
from app.runtimes.tensorflow.execution.staging import Staging

#: The most bytes of input tensors that are kept for the next call: for 256 shapes 64 MiB. Chosen.
_KEPT_BYTES = 1 << 18


class PreparedCall:
    """A call from input arrays of `shapes` to the wanted outputs, both by name. May be called from any thread.

    Args:
        execute: from the input tensors, in the order of `shapes`, to the result tensors; with `arrays`, of arrays.
        indices: the index of each wanted output among the results.
        reuse: whether an input tensor may be filled again after its call.
    """

    def __init__(
        self,
        signature: ModelSignature,
        execute: Executor,
        shapes: Mapping[str, tuple[int, ...]],
        indices: Mapping[str, int],
        *,
        reuse: bool,
        arrays: bool = False,
    ) -> None:
        self._execute = execute
        self._inputs = [(name, signature.inputs[name].dtype, shape) for name, shape in shapes.items()]
        self._outputs = [(name, index, signature.outputs[name].dtype) for name, index in indices.items()]
        size = sum(prod(shape) * dtype.itemsize for _, dtype, shape in self._inputs)
        self._reuse = reuse and size <= _KEPT_BYTES
        self._arrays = arrays
        self._copied: Callable[[Any, np.dtype[Any]], Array] = np.array if arrays else _from_tensor
        self._free: list[Staging] = []

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        try:
            staging = self._free.pop()
        except IndexError:
            staging = Staging(self._inputs, arrays=self._arrays)
        results = self._execute(staging.fill(inputs))

        # Copies: the memory may belong to an input of this call, to a constant or, in a TensorFlow 1 model, a variable.
        answer = {name: self._copied(results[index], dtype) for name, index, dtype in self._outputs}
        if self._reuse:
            self._free.append(staging)
        return answer


def _from_tensor(tensor: Any, dtype: np.dtype[Any]) -> Array:
    return np.asarray(tensor.numpy(), dtype)  # numpy() copies
