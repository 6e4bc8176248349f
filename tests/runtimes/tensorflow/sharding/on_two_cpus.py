"""What `ferry shard` makes of models, as one JSON document.

    python -m tests.runtimes.tensorflow.sharding.on_two_cpus FOLDER

In a process of its own that has two CPUs: TensorFlow's devices are fixed by its first operation. The oracle is the
original model, called by TensorFlow's public interface.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from app.core.inference import Array
from app.runtimes.tensorflow.saved_model.saved_model import SAVE_DEVICES, SavedModel
from app.runtimes.tensorflow.saved_model.signature_defs import serving_graph
from app.runtimes.tensorflow.sharding.graph_sharding import CannotShard
from app.runtimes.tensorflow.sharding.shard_model import ShardOptions, find_devices, shard_model
from tests.support import savedmodels

DEFAULT = "serving_default"
WIDTH = 12
RANDOM = np.random.default_rng(1)


def weights(*shape: int) -> Any:
    return tf.Variable(RANDOM.normal(0, 0.5, shape).astype(np.float32))


def save(path: Path, call: Callable[..., Any], *variables: Any, x: Any = None) -> None:
    module = tf.Module()
    module.variables_of_it = variables
    spec = x or tf.TensorSpec([None, WIDTH], tf.float32, name="x")
    tf.saved_model.save(module, str(path), signatures=tf.function(call, input_signature=[spec], autograph=False))


# --- models that can be split ---


def pair(path: Path) -> None:
    w, b, v, c = weights(WIDTH, 31), weights(31), weights(31, 8), weights(8)
    save(path, lambda x: {"y": tf.nn.relu(x @ w + b) @ v + c}, w, b, v, c)


def transposed(path: Path) -> None:
    w, v = weights(30, WIDTH), weights(8, 30)
    save(path, lambda x: {"y": tf.matmul(tf.tanh(tf.matmul(x, w, transpose_b=True)), v, transpose_b=True)}, w, v)


def shared_weights(path: Path) -> None:
    w = weights(WIDTH, WIDTH)
    save(path, lambda x: {"y": tf.nn.elu(tf.nn.elu(x @ w) @ w) @ w, "z": x @ w}, w)


def normalized_between(path: Path) -> None:
    w, v = weights(WIDTH, 20), weights(20, 6)
    save(path, lambda x: {"y": tf.nn.softmax(x @ w) @ v}, w, v)


def residual(path: Path) -> None:
    w, v = weights(WIDTH, 40), weights(40, WIDTH)
    save(path, lambda x: {"y": x + tf.nn.gelu(x @ w) @ v, "hidden": 3.0 * (x @ w)}, w, v)


def gated(path: Path) -> None:
    w, gate, v = weights(WIDTH, 24), weights(WIDTH, 24), weights(24, 6)
    save(path, lambda x: {"y": (tf.nn.sigmoid(x @ gate) * (x @ w)) @ v}, w, gate, v)


def constant(path: Path) -> None:
    w, v = RANDOM.random([WIDTH, 16], np.float32), RANDOM.random([16, 4], np.float32)
    save(path, lambda x: {"y": tf.nn.relu(x @ tf.constant(w)) @ tf.constant(v)})


def checked(path: Path) -> None:
    w, v = weights(WIDTH, 16), weights(16, 4)

    def call(x: Any) -> Any:
        with tf.control_dependencies([tf.debugging.assert_less(x, 9.0, "x must be below 9")]):
            return {"y": tf.nn.relu(x @ w) @ v}

    save(path, call, w, v)


def with_table(path: Path) -> None:
    keys, values = tf.constant(["0", "1", "2"]), tf.constant([0, 1, 2])
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), 3)
    rows, w = weights(4, WIDTH), weights(WIDTH, 16)
    spec = tf.TensorSpec([None], tf.string, name="word")
    save(path, lambda word: {"y": tf.gather(rows, table.lookup(word)) @ w}, table, rows, w, x=spec)


def of_keras(path: Path) -> None:
    layers = [keras.layers.Dense(50, "gelu"), keras.layers.Dense(30, "silu"), keras.layers.Dense(5, "softmax")]
    keras.Sequential([keras.Input([WIDTH]), *layers]).export(path, verbose=False)


def sequences_of_keras(path: Path) -> None:
    layers = [keras.layers.Dense(50, "relu"), keras.layers.Dense(7)]
    keras.Sequential([keras.Input([5, WIDTH]), *layers]).export(path, verbose=False)


# --- models that cannot ---


def convolution(path: Path) -> None:
    kernel = weights(3, 3, 1, 4)
    save(path, lambda x: {"y": tf.nn.conv2d(x, kernel, 1, "SAME")}, kernel, x=tf.TensorSpec([None, 8, 8, 1], name="x"))


def drawing(path: Path) -> None:
    w = weights(WIDTH, 20)
    save(path, lambda x: {"y": x @ w + tf.random.normal([20])}, w)


def broken(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "saved_model.pb").write_bytes(b"no model")


SPLIT = (
    pair, transposed, shared_weights, normalized_between, residual, gated, constant, checked, with_table, of_keras,
    sequences_of_keras,
)  # fmt: skip
REFUSED = (
    convolution, drawing, broken, savedmodels.make_counter, savedmodels.make_on_a_gpu, savedmodels.make_with_defaults,
)  # fmt: skip


def main(folder: Path) -> dict[str, Any]:
    devices = find_devices("CPU", 2)
    return {
        "split": {make.__name__: split(make, folder / make.__name__, devices) for make in SPLIT},
        "refused": {make.__name__: refused(make, folder / make.__name__, devices) for make in REFUSED},
        "more devices": rejection(lambda: find_devices("CPU", 3)),
        "signature": rejection(lambda: shard_model(folder / "pair", folder / "x", ShardOptions(devices, "other"))),
        "exists": rejection(lambda: shard_model(folder / "pair", folder / "pair", ShardOptions(devices))),
        "large": rejection(lambda: shard_model(folder / "pair", folder / "x", ShardOptions(devices, min_mb=1))),
        "left": sorted(each.name for each in folder.iterdir() if "." in each.name or each.name == "x"),
    }


def rejection(call: Callable[[], object]) -> str:
    try:
        call()
    except CannotShard as error:
        return str(error)
    return ""


def refused(make: Callable[[Path], None], path: Path, devices: Any) -> str:
    make(path)
    return rejection(lambda: shard_model(path, path.with_name("x"), ShardOptions(devices, min_mb=0)))


def split(make: Callable[[Path], None], path: Path, devices: Any) -> dict[str, Any]:
    make(path)
    out = path.with_name(f"{make.__name__}_split")
    layers = shard_model(path, out, ShardOptions(devices, min_mb=0))
    served = SavedModel(out, devices=devices)
    return {
        "layers": [[list(layer.shape), layer.by] for layer in layers],
        "apart": max(apart(path, served, rows) for rows in (1, 2, 5)),
        "variables": sorted([list(each.shape), each.device[-5:]] for each in variables_of(out)),
        "computed on": computed_on(out),
        "rejects": rejects(served) if make is checked else "",
    }


def apart(path: Path, served: SavedModel, rows: int) -> float:
    """How far the answers lie from those of the original, relative to the largest."""
    original = tf.saved_model.load(str(path)).signatures[DEFAULT]
    inputs = {name: values(spec, rows) for name, spec in served.signatures[DEFAULT].inputs.items()}
    expected = original(**{name: tf.constant(value) for name, value in inputs.items()})
    actual = served.run(DEFAULT, inputs, ())
    assert expected.keys() == actual.keys()
    return max(float(np.abs(expected[name] - actual[name]).max() / np.abs(expected[name]).max()) for name in expected)


def values(spec: Any, rows: int) -> Array:
    shape = [rows, *spec.shape[1:]]
    if spec.dtype == object:
        return RANDOM.choice(np.array([b"0", b"1", b"2"], object), shape)
    return RANDOM.normal(0, 1, shape).astype(np.float32)


def variables_of(path: Path) -> Any:
    options = tf.saved_model.LoadOptions(experimental_variable_policy=SAVE_DEVICES)
    loaded = tf.saved_model.load(str(path), options=options)
    return [*loaded.parts, *loaded.whole]


def computed_on(path: Path) -> dict[str, int]:
    """How many matrix products each device has."""
    found: dict[str, int] = {}
    for function in serving_graph(path).graph_def.library.function:
        for node in function.node_def:
            if node.op == "MatMul":
                found[node.device[-5:]] = found.get(node.device[-5:], 0) + 1
    return found


def rejects(served: SavedModel) -> str:
    try:
        served.run(DEFAULT, {"x": np.full((2, WIDTH), 10.0, np.float32)}, ())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))))
