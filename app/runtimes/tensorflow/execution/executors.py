"""Executors of TensorFlow functions: direct where that works, else by the public interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from app.runtimes.tensorflow import private_api

_Tensors = dict[str, Any]

#: From input tensors to result tensors, each in the order of their names.
Executor = Callable[[Sequence[Any]], Sequence[Any]]


def make_executor(graph: Any, inputs: Sequence[str], device: str | None = None) -> Executor:
    """The fastest way to execute a concrete function from a dictionary of `inputs` to a dictionary of results.

    Errors are those of the public call. A device of None lets TensorFlow choose.
    """
    if private_api.works(private_api.DIRECT_EXECUTION):
        return private_api.direct_executor(graph, device)
    return public_executor(graph, inputs, device)


def public_executor(
    function: Callable[[_Tensors], _Tensors], inputs: Sequence[str], device: str | None = None
) -> Executor:
    def execute(tensors: Sequence[Any]) -> Sequence[Any]:
        with tf.device(device):
            results = function(dict(zip(inputs, tensors, strict=True)))
        return [results[name] for name in sorted(results)]

    return execute
