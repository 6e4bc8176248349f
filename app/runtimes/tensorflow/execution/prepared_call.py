"""A call of which everything is decided but the values: how to execute it, the shapes, the outputs wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from app.core.inference import Array, ModelSignature
from app.runtimes.tensorflow.execution.executors import Executor
from app.runtimes.tensorflow.execution.staging import ArrayStaging, Staging

#: Input tensors of more bytes than this together are made for each call: of 256 shapes 64 MiB are kept. Chosen.
_KEPT_BYTES = 1 << 18


class PreparedCall:
    """From input arrays of `shapes` to the outputs wanted, both by name. May be called from any thread.

    Args:
        execute: from the input tensors, in the order of `shapes`, to the result tensors; or arrays both.
        indices: the index of each output wanted among the results.
        reuse: may an input tensor be filled again when the call that it was made for is over?
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
        self._staging: type[Staging | ArrayStaging] = ArrayStaging if arrays else Staging
        self._copied: Callable[[Any, np.dtype[Any]], Array] = np.array if arrays else _from_tensor
        self._free: list[Staging | ArrayStaging] = []

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        try:
            staging = self._free.pop()
        except IndexError:
            staging = self._staging(self._inputs)
        results = self._execute(staging.fill(inputs))

        # Copies: the memory may belong to an input of this call, to a constant or, in a TensorFlow 1 model, to a
        # variable.
        answer = {name: self._copied(results[index], dtype) for name, index, dtype in self._outputs}
        if self._reuse:
            self._free.append(staging)
        return answer


def _from_tensor(tensor: Any, dtype: np.dtype[Any]) -> Array:
    return np.asarray(tensor.numpy(), dtype)  # numpy() copies
