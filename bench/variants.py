"""Plain, frozen, inline and XLA on three models, by batch size: `python -m bench.variants`.

Each variant is called in turn with plain, so the ratios hold although the machine's speed drifts.
Compilation is not part of a call; its seconds are shown separately.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import keras
import tensorflow as tf

from app.core.time_budget import TimeBudget
from app.runtimes.tensorflow.execution.signature_function import SignatureFunction
from app.runtimes.tensorflow.execution.variant import ALTERNATIVES, VariantMaker, VariantNotPossible
from app.runtimes.tensorflow.saved_model.saved_model import SavedModel
from app.runtimes.tensorflow.variants.trial import try_signature

SIZES = (1, 8, 32)
TOKENS, WIDTH, HEADS, LAYERS, WORDS = 64, 128, 4, 4, 1000


def mlp() -> keras.Model:
    return keras.Sequential(
        [keras.Input([16]), keras.layers.Dense(32, "relu"), keras.layers.Dense(32, "relu"), keras.layers.Dense(4)]
    )


def mobilenet() -> keras.Model:
    return keras.applications.MobileNetV2(input_shape=(96, 96, 3), weights=None, classes=100)


def transformer() -> keras.Model:
    layers = keras.layers
    tokens = keras.Input([TOKENS], dtype="int32")
    x = layers.Embedding(WORDS, WIDTH)(tokens) + layers.Embedding(TOKENS, WIDTH)(keras.ops.arange(TOKENS))
    for _ in range(LAYERS):
        y = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(y, y)
        y = layers.Dense(4 * WIDTH, "gelu")(layers.LayerNormalization()(x))
        x = x + layers.Dense(WIDTH)(y)
    return keras.Model(tokens, layers.Dense(8)(layers.GlobalAveragePooling1D()(x)))


MODELS: dict[str, Callable[[], keras.Model]] = {"MLP": mlp, "MobileNetV2 96x96": mobilenet, "transformer": transformer}


def save(model: keras.Model, path: Path) -> None:
    module = tf.Module()
    module.model = model
    spec = tf.TensorSpec((None, *model.inputs[0].shape[1:]), model.inputs[0].dtype, name="x")
    module.call = tf.function(lambda x: {"y": model(x, training=False)}, input_signature=[spec])
    tf.saved_model.save(module, str(path), signatures=module.call)


def compare(function: SignatureFunction, rows: int, seconds: float) -> list[str]:
    """One line of the table: the milliseconds of plain, and of each variant its gain and its first call."""
    trial = try_signature(function, rows, TimeBudget(inf), set())
    cells = []
    for name in ALTERNATIVES:
        maker = VariantMaker(function.signature, function.plain, frozen_limit_mb=1000)
        start_s = time.perf_counter()
        try:
            variant = maker.make(name, trial.inputs)
            agrees = trial.agrees(variant)
        except VariantNotPossible as reason:
            cells += [str(reason), ""]
            continue
        first_s = time.perf_counter() - start_s
        plain_s, variant_s = in_turn(function, [function.plain, variant.graph], trial.inputs, seconds)
        gain = f"{median(plain_s) / median(variant_s):.2f}x" if agrees else "differs"
        cells += [gain, f"{first_s:.1f}"]
    return [str(rows), f"{1000 * median(plain_s):.2f}", *cells]


def in_turn(function: SignatureFunction, graphs: Sequence[Any], inputs: Any, seconds: float) -> list[list[float]]:
    calls = [function.prepare(graph, inputs) for graph in graphs]
    times: list[list[float]] = [[] for _ in graphs]
    end_s = time.perf_counter() + seconds
    while len(times[0]) < 5 or time.perf_counter() < end_s:
        for call, its_times in zip(calls, times, strict=True):
            start_s = time.perf_counter()
            call(inputs)
            its_times.append(time.perf_counter() - start_s)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each comparison")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    arguments = parser.parse_args()
    head = ["model", "rows", "plain, ms", *(each for name in ALTERNATIVES for each in (name, "made in, s"))]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            save(MODELS[name](), Path(folder))
            model = SavedModel(Path(folder))
        function = model._functions["serving_default"]
        for rows in SIZES:
            print(f"| {name} | {' | '.join(compare(function, rows, arguments.seconds))} |")
            sys.stdout.flush()
        model.close()


if __name__ == "__main__":
    main()
