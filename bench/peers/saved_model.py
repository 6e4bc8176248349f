"""What every peer serves: the SavedModel's signature, called on rows. Runs in the peers' environments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

Array = np.ndarray[Any, Any]

PORT = int(os.environ.get("BENCH_PORT", "0"))
MODEL = os.environ["BENCH_MODEL"]
INPUT, OUTPUT = os.environ["BENCH_INPUT"], os.environ["BENCH_OUTPUT"]
#: "json" or "binary"; binary is the row's bytes in order, and so is the reply.
WIRE = os.environ.get("BENCH_WIRE", "json")

#: Most rows in a batch, for every peer alike; Ferry's default.
MAX_BATCH_SIZE = 64


class Signature:
    """serving_default of the SavedModel that the environment names: one input, one output."""

    def __init__(self) -> None:
        self._loaded = tf.saved_model.load(os.environ["BENCH_SAVED_MODEL"])
        self.call = self._loaded.signatures["serving_default"]
        spec = self.call.structured_input_signature[1][INPUT]
        self.dtype = spec.dtype.as_numpy_dtype
        self.shape = tuple(-1 if size is None else size for size in spec.shape[1:])
        for rows in (1, MAX_BATCH_SIZE):  # warm up
            self.run(np.ones((rows, *(abs(size) for size in self.shape)), self.dtype))

    def run(self, batch: Array) -> Array:
        answer: Array = self.call(**{INPUT: tf.constant(batch, self.dtype)})[OUTPUT].numpy()
        return answer

    def run_rows(self, rows: Sequence[Array]) -> Array:
        """Rows of unequal length are filled up with 0, which is what the transformer takes for padding."""
        return self.run(stack(rows))

    def row(self, content: bytes) -> Array:
        """From a binary body."""
        return np.frombuffer(content, self.dtype).reshape(self.shape)

    def array(self, values: Any) -> Array:
        """From JSON."""
        return np.asarray(values, self.dtype)


def stack(rows: Sequence[Array]) -> Array:
    longest = max(len(row) for row in rows)
    if all(len(row) == longest for row in rows):
        return np.stack(rows)
    batch = np.zeros((len(rows), longest), rows[0].dtype)
    for n, row in enumerate(rows):
        batch[n, : len(row)] = row
    return batch
