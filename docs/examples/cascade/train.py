"""Trains the cascade and chooses its threshold: `python -m docs.examples.cascade.train`.

The images are scikit-learn's 1,797 handwritten digits, drawn larger, at several sizes. Three parts of them: the nets
are trained on one, the threshold is chosen on another, and what samples.json and the README tell is measured on the
third.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from models.digits.train import CLASSES, LARGEST_PIXEL, shifted
from models.training import (
    cross_entropy,
    export,
    fit,
    glorot,
    make_repeatable,
    shuffled_batches,
    write_samples,
    zeros,
)

HERE = Path(__file__).parent
MODELS = HERE / "models"
PIPELINE = MODELS / "read/1/pipeline.yaml"

SEED = 0
BATCH = 64
SIDE = 8  # pixels of what the nets read
SIZES = [(16, 16), (24, 16), (28, 28), (32, 24)]  # height and width of the images
THRESHOLDS = [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98]
LEAST_ACCURACY = 0.97
SAMPLES = 8

Variables = dict[str, tf.Variable]
Logits = Callable[[Variables, tf.Tensor, float], tf.Tensor]
Answer = Mapping[str, np.ndarray]


class Digits(NamedTuple):
    """images: of several sizes, each [height, width] uint8; labels: [rows]."""

    images: list[np.ndarray]
    labels: np.ndarray


# --- the models ---


def pixels(image: tf.Tensor) -> tf.Tensor:
    """[batch, height, width] of 0 (paper) to 255 (ink) -> [batch, 8, 8] of 0 to 1, means of what each pixel covers."""
    resized = tf.image.resize(image[..., tf.newaxis], [SIDE, SIDE], method="area")
    return tf.ensure_shape(resized[..., 0] / 255.0, [None, SIDE, SIDE])


def small_variables() -> Variables:
    return {"kernel": glorot(SIDE * SIDE, CLASSES), "bias": zeros(CLASSES)}


def small_logits(v: Variables, image: tf.Tensor, drop: float) -> tf.Tensor:
    """A linear model: [batch, 8, 8] -> [batch, 10]."""
    x = tf.reshape(image, [-1, SIDE * SIDE])
    return (tf.nn.dropout(x, drop) if drop else x) @ v["kernel"] + v["bias"]


def big_variables() -> Variables:
    return {
        "conv1_kernel": glorot(3, 3, 1, 16),
        "conv1_bias": zeros(16),
        "conv2_kernel": glorot(3, 3, 16, 32),
        "conv2_bias": zeros(32),
        "hidden_kernel": glorot(4 * 4 * 32, 32),
        "hidden_bias": zeros(32),
        "output_kernel": glorot(32, CLASSES),
        "output_bias": zeros(CLASSES),
    }


def big_logits(v: Variables, image: tf.Tensor, drop: float) -> tf.Tensor:
    """The net of models/digits, with half the hidden units: [batch, 8, 8] -> [batch, 10]."""
    x = tf.expand_dims(image, -1)
    x = tf.nn.relu(tf.nn.conv2d(x, v["conv1_kernel"], 1, "SAME") + v["conv1_bias"])
    x = tf.nn.relu(tf.nn.conv2d(x, v["conv2_kernel"], 1, "SAME") + v["conv2_bias"])
    x = tf.reshape(tf.nn.max_pool2d(x, 2, 2, "VALID"), [-1, 4 * 4 * 32])
    x = tf.nn.relu(x @ v["hidden_kernel"] + v["hidden_bias"])
    return (tf.nn.dropout(x, drop) if drop else x) @ v["output_kernel"] + v["output_bias"]


def train(logits: Logits, variables: Variables, batches: Sequence[tuple[np.ndarray, np.ndarray]], drop: float) -> None:
    fit(lambda image, label: cross_entropy(label, logits(variables, image, drop)), list(variables.values()), batches)


def batches_of(images: np.ndarray, labels: np.ndarray, epochs: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(SEED)
    for batch in shuffled_batches(len(labels), BATCH, epochs, random):
        yield images[batch], labels[batch]


def save_net(logits: Logits, variables: Variables, folder: Path) -> None:
    def answer(pixels: tf.Tensor) -> dict[str, tf.Tensor]:
        probabilities = tf.nn.softmax(logits(variables, pixels, 0.0))
        return {
            "digit": tf.argmax(probabilities, axis=1, output_type=tf.int32),
            "confidence": tf.reduce_max(probabilities, axis=1),
        }

    spec = tf.TensorSpec([None, SIDE, SIDE], tf.float32, name="pixels")
    export(variables, {"serving_default": tf.function(answer, input_signature=[spec])}, folder)


def save_pixels(folder: Path) -> None:
    def answer(image: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"pixels": pixels(image)}

    spec = tf.TensorSpec([None, None, None], tf.uint8, name="image")
    export({}, {"serving_default": tf.function(answer, input_signature=[spec])}, folder)


# --- the data ---


def drawn(digit: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """A digit of 8x8 pixels as a larger image: [height, width] uint8."""
    larger = tf.image.resize(digit[..., np.newaxis], size, method="bicubic")[..., 0]
    image: np.ndarray = np.clip(np.rint(larger.numpy() * 255), 0, 255).astype(np.uint8)
    return image


def three_parts() -> tuple[Digits, Digits, Digits]:
    """To train with, to choose the threshold with, held out."""
    digits = load_digits()
    images = digits.images / LARGEST_PIXEL
    train_rows, others = train_test_split(
        np.arange(len(images)), test_size=0.4, stratify=digits.target, random_state=SEED
    )
    chosen, held = train_test_split(others, test_size=0.5, stratify=digits.target[others], random_state=SEED)

    def part(rows: np.ndarray) -> Digits:
        return Digits([drawn(images[row], SIZES[row % len(SIZES)]) for row in rows], digits.target[rows])

    return part(train_rows), part(chosen), part(held)


# --- what it answers ---


class Served:
    """The SavedModels, called directly."""

    def __init__(self) -> None:
        self._loaded = {name: tf.saved_model.load(str(MODELS / name / "1")) for name in ("pixels", "small", "big")}

    def __call__(self, name: str, **inputs: np.ndarray) -> Answer:
        outputs = self._loaded[name].signatures["serving_default"](**{k: tf.constant(v) for k, v in inputs.items()})
        return {key: value.numpy() for key, value in outputs.items()}

    def read(self, images: list[np.ndarray]) -> tuple[Answer, Answer]:
        """What the small net and what the big one says of each image."""
        read = np.concatenate([self("pixels", image=image[np.newaxis])["pixels"] for image in images])
        return self("small", pixels=read), self("big", pixels=read)


def cascade(small: Answer, big: Answer, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """The digits that the pipeline reads, and which rows the big net is asked about."""
    asked = small["confidence"] < np.float32(threshold)
    return np.where(asked, big["digit"], small["digit"]), asked


def choose_threshold(small: Answer, big: Answer, labels: np.ndarray) -> float:
    """The lowest at which the cascade reads as many digits right as the big net alone."""
    alone = np.mean(big["digit"] == labels)
    good = [each for each in THRESHOLDS if np.mean(cascade(small, big, each)[0] == labels) >= alone]
    return good[0] if good else THRESHOLDS[-1]


def main() -> None:
    make_repeatable(SEED)
    to_train, to_choose, held = three_parts()
    read = np.concatenate([pixels(tf.constant(image[np.newaxis])).numpy() for image in to_train.images])
    small, big = small_variables(), big_variables()
    train(small_logits, small, list(batches_of(read, to_train.labels, epochs=200)), drop=0.0)
    moved = np.random.default_rng(SEED)
    batches = [(shifted(images, moved), labels) for images, labels in batches_of(read, to_train.labels, epochs=60)]
    train(big_logits, big, batches, drop=0.3)
    save_pixels(MODELS / "pixels/1")
    save_net(small_logits, small, MODELS / "small/1")
    save_net(big_logits, big, MODELS / "big/1")

    served = Served()
    threshold = choose_threshold(*served.read(to_choose.images), to_choose.labels)
    PIPELINE.write_text(re.sub(r"confidence < [\d.]+", f"confidence < {threshold}", PIPELINE.read_text()))

    images, labels = held
    of_small, of_big = served.read(images)
    digits, asked = cascade(of_small, of_big, threshold)
    facts = {
        "threshold": threshold,
        "held_out_count": len(labels),
        "small_accuracy": round(float(np.mean(of_small["digit"] == labels)), 4),
        "big_accuracy": round(float(np.mean(of_big["digit"] == labels)), 4),
        "cascade_accuracy": round(float(np.mean(digits == labels)), 4),
        "share_asked_big": round(float(np.mean(asked)), 4),
    }
    print(facts)
    if facts["cascade_accuracy"] < LEAST_ACCURACY:
        sys.exit(f"below {LEAST_ACCURACY:.0%}")
    write_requests(images, labels, asked, facts)


def write_requests(
    images: Sequence[np.ndarray], labels: np.ndarray, asked: np.ndarray, facts: dict[str, float]
) -> None:
    """Some of those that the big net is asked about and some others; in request.json one of each, of one size."""
    shown = [*np.flatnonzero(~asked)[: SAMPLES // 2], *np.flatnonzero(asked)[: SAMPLES // 2]]
    write_samples(
        HERE / "samples.json",
        facts,
        (
            {"image": images[row].tolist(), "label": int(labels[row]), "asks_big": bool(asked[row])}
            for row in sorted(shown)
        ),
    )
    smallest = [row for row, image in enumerate(images) if image.shape == SIZES[0]]
    pair = [next(row for row in smallest if asked[row] == wanted) for wanted in (False, True)]
    request = {"instances": [{"image": images[row].tolist()} for row in pair]}
    (HERE / "request.json").write_text(json.dumps(request, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
