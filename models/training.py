"""What the training scripts of the default models share: repeatable training and small exports."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

Loss = Callable[..., tf.Tensor]


def make_repeatable(seed: int) -> None:
    tf.keras.utils.set_random_seed(seed)
    tf.config.experimental.enable_op_determinism()


def fit(loss: Loss, variables: Sequence[tf.Variable], batches: Sequence[tuple[Any, ...]], peak: float = 3e-3) -> None:
    """Minimises `loss(*batch)` over `batches`, once each, with Adam and a rate that falls from `peak` to 0."""
    optimizer = tf.keras.optimizers.Adam(tf.keras.optimizers.schedules.CosineDecay(peak, len(batches)))
    optimizer.build(variables)

    def step(*batch: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            value = loss(*batch)
        optimizer.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))

    compiled = tf.function(step, reduce_retracing=True)
    for batch in batches:
        compiled(*(tf.constant(array) for array in batch))


def export(variables: Mapping[str, tf.Variable], signatures: Mapping[str, Any], folder: Path) -> None:
    """Saves the inference graph alone: the saved object owns the variables and nothing of the training."""
    shutil.rmtree(folder, ignore_errors=True)
    module = tf.Module()
    for name, variable in variables.items():
        setattr(module, name, variable)
    tf.saved_model.save(module, str(folder), signatures=dict(signatures))


def write_samples(path: Path, facts: Mapping[str, Any], samples: Iterable[Mapping[str, Any]]) -> None:
    """Writes JSON with one sample a line, so that a change shows as a readable difference."""
    head = json.dumps(dict(facts), indent=2).removesuffix("\n}")
    lines = ",\n".join(json.dumps(dict(sample), separators=(",", ":"), ensure_ascii=False) for sample in samples)
    path.write_text(f'{head},\n  "samples": [\n{lines}\n]\n}}\n', encoding="utf-8")


def glorot(*shape: int) -> tf.Variable:
    return tf.Variable(tf.keras.initializers.GlorotUniform()(shape))


def zeros(size: int) -> tf.Variable:
    return tf.Variable(tf.zeros(size))


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def shuffled_batches(count: int, size: int, epochs: int, random: np.random.Generator) -> list[np.ndarray]:
    """Row numbers of every batch of `epochs` passes over `count` rows; each pass in its own order."""
    passes = (random.permutation(count) for _ in range(epochs))
    return [order[start : start + size] for order in passes for start in range(0, count, size)]
