"""Makes the benchmark's SavedModels and their expected answers: python -m bench.models

Fixed seeds, so that every machine measures the same models. Each model is one folder in the cache: a repository
with that model alone, and samples.npz with inputs (one row each) and the direct call's outputs.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.support.cache import CACHE, ROOT

Array = np.ndarray[Any, Any]
FOLDER = CACHE / "savedmodels"

IMAGE = (96, 96, 3)
TOKENS, WIDTH, HEADS, LAYERS, VOCABULARY = 64, 128, 4, 4, 1000


def ensure_models() -> None:
    """In a process of its own: TensorFlow stays out of the one that measures."""
    if not _stamp().is_file():
        subprocess.run([sys.executable, "-m", "bench.models"], cwd=ROOT, check=True)


def saved_model(model: str) -> Path:
    """The version's folder, `<repository>/<model>/1`."""
    return FOLDER / model / "repository" / model / "1"


def samples_file(model: str) -> Path:
    return FOLDER / model / "samples.npz"


def read_samples(model: str) -> list[tuple[Array, Array]]:
    """Input and expected output of each sample, without the batch axis."""
    with np.load(samples_file(model)) as file:
        return [(file[f"input_{n}"], file[f"output_{n}"]) for n in range(len(file.files) // 2)]


def _stamp() -> Path:
    return FOLDER / hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


# --- the models; each saves signature serving_default with one input and one output ---


def mlp(tf: Any, path: Path) -> None:
    """x [batch, 16] -> scores [batch, 4] through two hidden layers of 64."""
    module, random = tf.Module(), tf.random.Generator.from_seed(1)
    sizes = (16, 64, 64, 4)
    module.kernels = [tf.Variable(random.normal([m, n]) / m**0.5) for m, n in itertools.pairwise(sizes)]
    module.biases = [tf.Variable(random.normal([n])) for n in sizes[1:]]

    def call(x: Any) -> Any:
        for kernel, bias in zip(module.kernels, module.biases, strict=True):
            x = tf.nn.relu(x @ kernel + bias)
        return {"scores": x}

    _save(tf, module, path, call, tf.TensorSpec([None, 16], tf.float32, name="x"))


def digits(tf: Any, path: Path) -> None:  # noqa: ARG001 - it is trained already
    """image [batch, 8, 8] -> probabilities [batch, 10]: the model that comes with Ferry."""
    shutil.copytree(ROOT / "models" / "digits" / "1", path)


def mobilenet(tf: Any, path: Path) -> None:
    """image [batch, 96, 96, 3] -> logits [batch, 100]: MobileNetV2 with random weights.

    One pass sets its batch normalisation; without it signals fade to 1e-12 on their way through the layers.
    """
    tf.keras.utils.set_random_seed(2)
    module = tf.Module()
    module.network = tf.keras.applications.MobileNetV2(
        input_shape=IMAGE, weights=None, classes=100, classifier_activation=None
    )
    for layer in module.network.layers:
        if isinstance(layer, tf.keras.layers.BatchNormalization):
            layer.momentum = 0.0
    random = np.random.default_rng(6)
    module.network(np.stack([_image(random) for _ in range(16)]), training=True)
    spec = tf.TensorSpec([None, *IMAGE], tf.float32, name="image")
    _save(tf, module, path, lambda image: {"logits": module.network(image, training=False)}, spec)


def thumbnail(tf: Any, path: Path) -> None:
    """image [batch, 96, 96, 3] -> logits [batch, 10] at next to no cost: what remains is carrying the image."""
    module, random = tf.Module(), tf.random.Generator.from_seed(3)
    module.kernel = tf.Variable(random.normal([12 * 12 * 3, 10]))

    def call(image: Any) -> Any:
        small = tf.nn.avg_pool2d(image, 8, 8, "VALID")
        return {"logits": tf.reshape(small, [-1, 12 * 12 * 3]) @ module.kernel}

    _save(tf, module, path, call, tf.TensorSpec([None, *IMAGE], tf.float32, name="image"))


def transformer(tf: Any, path: Path) -> None:
    """tokens [batch, length] of int32, 0 being padding -> logits [batch, 8] through four encoder layers."""
    module, random = tf.Module(), tf.random.Generator.from_seed(4)

    def dense(m: int, n: int) -> Any:
        return tf.Variable(random.normal([m, n]) / m**0.5)

    module.embedding, module.positions, module.head = dense(VOCABULARY, WIDTH), dense(TOKENS, WIDTH), dense(WIDTH, 8)
    names = {"query": WIDTH, "key": WIDTH, "value": WIDTH, "out": WIDTH, "up": 4 * WIDTH}
    module.layers = [
        {**{name: dense(WIDTH, n) for name, n in names.items()}, "down": dense(4 * WIDTH, WIDTH)} for _ in range(LAYERS)
    ]

    def normalise(x: Any) -> Any:
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-6)

    def heads(x: Any) -> Any:
        shape = tf.shape(x)
        return tf.transpose(tf.reshape(x, [shape[0], shape[1], HEADS, WIDTH // HEADS]), [0, 2, 1, 3])

    def attend(x: Any, layer: Any, mask: Any) -> Any:
        query, key, value = (heads(x @ layer[name]) for name in ("query", "key", "value"))
        scores = tf.matmul(query, key, transpose_b=True) / (WIDTH // HEADS) ** 0.5 + mask
        mixed = tf.transpose(tf.matmul(tf.nn.softmax(scores), value), [0, 2, 1, 3])
        return tf.reshape(mixed, tf.shape(x)) @ layer["out"]

    def call(tokens: Any) -> Any:
        real = tf.cast(tokens > 0, tf.float32)
        mask = (real[:, tf.newaxis, tf.newaxis, :] - 1.0) * 1e9
        x = tf.gather(module.embedding, tokens) + module.positions[: tf.shape(tokens)[1]]
        for layer in module.layers:
            x += attend(normalise(x), layer, mask)
            x += tf.nn.relu(normalise(x) @ layer["up"]) @ layer["down"]
        pooled = tf.reduce_sum(x * real[..., tf.newaxis], 1) / tf.reduce_sum(real, 1, keepdims=True)
        return {"logits": pooled @ module.head}

    _save(tf, module, path, call, tf.TensorSpec([None, None], tf.int32, name="tokens"))


# --- their inputs ---


def _vector(random: np.random.Generator) -> Array:
    return random.random(16, np.float32).round(3)


def _digit(random: np.random.Generator) -> Array:
    return random.integers(0, 17, (8, 8)).astype(np.float32)


def _image(random: np.random.Generator) -> Array:
    """Patches of colour and noise, as clients send pixels: 0 ... 255 scaled to 0 ... 1."""
    patches = np.kron(random.integers(0, 200, (6, 6, 3)), np.ones((16, 16, 1), np.int64))
    return ((patches + random.integers(0, 56, IMAGE)) / 255).astype(np.float32)


def _tokens(least: int) -> Callable[[np.random.Generator], Array]:
    return lambda random: random.integers(1, VOCABULARY, random.integers(least, TOKENS + 1), np.int32)


#: Name: what makes the model, one input, and how many samples. Models may stand here under several names.
MODELS: dict[str, tuple[Callable[[Any, Path], None], Callable[[np.random.Generator], Array], int]] = {
    "mlp": (mlp, _vector, 64),
    "digits": (digits, _digit, 64),
    "mobilenet": (mobilenet, _image, 8),
    "thumbnail": (thumbnail, _image, 8),
    "transformer": (transformer, _tokens(TOKENS), 64),
    "transformer_mixed": (transformer, _tokens(4), 64),
}


def _save(tf: Any, module: Any, path: Path, call: Callable[..., Any], spec: Any) -> None:
    module.call = tf.function(call, input_signature=[spec])
    tf.saved_model.save(module, str(path), signatures=module.call)


def _answers(tf: Any, path: Path, inputs: list[Array]) -> Iterator[Array]:
    loaded = tf.saved_model.load(str(path))
    signature = loaded.signatures["serving_default"]
    (name,) = signature.structured_input_signature[1]
    for array in inputs:
        (output,) = signature(**{name: tf.constant(array[np.newaxis])}).values()
        yield output.numpy()[0]


def main() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf  # noqa: PLC0415 - after the setting above

    shutil.rmtree(FOLDER, ignore_errors=True)
    for model, (make, one_input, count) in MODELS.items():
        print(f"Making model {model}", flush=True)
        make(tf, saved_model(model))
        random = np.random.default_rng(5)
        inputs = [one_input(random) for _ in range(count)]
        outputs = list(_answers(tf, saved_model(model), inputs))
        if np.ptp(np.stack(outputs), axis=0).max() < 0.1:
            sys.exit(f"The answers of {model} are all alike: mixed-up replies would pass for right")
        named = {
            f"{kind}_{n}": array
            for kind, each in (("input", inputs), ("output", outputs))
            for n, array in enumerate(each)
        }
        np.savez(samples_file(model), **named)
    _stamp().touch()


if __name__ == "__main__":
    main()
