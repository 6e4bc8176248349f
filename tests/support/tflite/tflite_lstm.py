"""A TFLite model with the fused LSTM, whose memory LiteRT keeps from call to call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tests.support.tflite.tflite_models import convert

#: Steps of a sequence, numbers of a step, and cells.
STEPS, WIDTH, CELLS = 5, 3, 4


def fused_lstm() -> tuple[bytes, Callable[[Any], Any]]:
    """x [1, STEPS, WIDTH] -> y [1, STEPS, CELLS] as a TFLite file, and the function that it was made from.

    The attributes are those of Keras 2, by which the converter knows the layer.
    """
    fused = {"api_implements": "lstm_1", "api_preferred_device": "CPU", "go_backwards": False, "time_major": False}
    random = np.random.default_rng(1)
    kernel, recurrent, bias = (
        tf.constant(random.normal(0, 1, shape).astype(np.float32))
        for shape in ((WIDTH, 4 * CELLS), (CELLS, 4 * CELLS), (4 * CELLS,))
    )

    @tf.function(experimental_attributes=fused, autograph=False)
    def lstm(x: Any, h: Any, c: Any, *weights: Any) -> Any:
        kernel, recurrent, bias = weights
        each = []
        for step in range(STEPS):
            gates = x[:, step] @ kernel + h @ recurrent + bias
            i, f, g, o = tf.split(gates, 4, axis=1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
            h = tf.sigmoid(o) * tf.tanh(c)
            each.append(h)
        return h, tf.stack(each, 1), h, c, tf.constant(1.0)

    def call(x: Any) -> Any:
        zeros = tf.zeros([1, CELLS])
        return {"y": lstm(x, zeros, zeros, kernel, recurrent, bias)[1]}

    return convert(call, tf.TensorSpec([1, STEPS, WIDTH], tf.float32, name="x")), call
