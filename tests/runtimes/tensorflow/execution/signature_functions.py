"""Signatures from `x` to `y` made of plain functions, and one call of a graph of theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from app.core.inference import Array, ModelSignature, TensorSpec
from app.runtimes.tensorflow.execution.signature_function import SignatureFunction

FLOAT32 = np.dtype(np.float32)


def function_of(
    body: Callable[[Any], Any], dtype: np.dtype[Any] = FLOAT32, shape: tuple[int | None, ...] = (None, 3)
) -> SignatureFunction:
    """x -> y."""
    spec = tf.TensorSpec(shape, dtype)
    output = tf.function(body).get_concrete_function(spec)
    signature = ModelSignature(
        "s",
        {"x": TensorSpec("x", dtype, shape)},
        {"y": TensorSpec("y", np.dtype(output.output_dtypes.as_numpy_dtype), tuple(output.output_shapes))},
    )
    return SignatureFunction(signature, lambda x: {"y": output(x)})


def run(function: SignatureFunction, graph: Any, inputs: dict[str, Array]) -> dict[str, Array]:
    return function.prepare(graph, inputs)(inputs)
