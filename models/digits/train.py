"""Trains the digits model on scikit-learn's 1,797 handwritten digits: `python -m models.digits.train`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

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
SEED = 0
EPOCHS = 40
BATCH = 64
LEAST_ACCURACY = 0.97
SAMPLES = 64
LARGEST_PIXEL = 16.0
CLASSES = 10


def make_variables() -> dict[str, tf.Variable]:
    return {
        "conv1_kernel": glorot(3, 3, 1, 16),
        "conv1_bias": zeros(16),
        "conv2_kernel": glorot(3, 3, 16, 32),
        "conv2_bias": zeros(32),
        "hidden_kernel": glorot(4 * 4 * 32, 64),
        "hidden_bias": zeros(64),
        "output_kernel": glorot(64, CLASSES),
        "output_bias": zeros(CLASSES),
    }


def logits(v: dict[str, tf.Variable], image: tf.Tensor, drop: float = 0.0) -> tf.Tensor:
    """[batch, 8, 8] pixels 0..16 -> [batch, 10]. `drop` is the share of hidden units left out while training."""
    x = tf.expand_dims(image, -1) / LARGEST_PIXEL
    x = tf.nn.relu(tf.nn.conv2d(x, v["conv1_kernel"], 1, "SAME") + v["conv1_bias"])
    x = tf.nn.relu(tf.nn.conv2d(x, v["conv2_kernel"], 1, "SAME") + v["conv2_bias"])
    x = tf.reshape(tf.nn.max_pool2d(x, 2, 2, "VALID"), [-1, 4 * 4 * 32])
    x = tf.nn.relu(x @ v["hidden_kernel"] + v["hidden_bias"])
    if drop:
        x = tf.nn.dropout(x, drop)
    return x @ v["output_kernel"] + v["output_bias"]


def shifted(images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The same digits, moved as a batch by up to one pixel each way: 1,437 digits alone are few."""
    down, right = random.integers(0, 3, size=2)
    framed = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    return framed[:, down : down + 8, right : right + 8]


def train(images: np.ndarray, labels: np.ndarray) -> dict[str, tf.Variable]:
    variables = make_variables()
    random = np.random.default_rng(SEED)
    rows = shuffled_batches(len(images), BATCH, EPOCHS, random)
    fit(
        lambda image, label: cross_entropy(label, logits(variables, image, drop=0.3)),
        list(variables.values()),
        [(shifted(images[batch], random), labels[batch]) for batch in rows],
    )
    return variables


def save(v: dict[str, tf.Variable], folder: Path) -> None:
    """Exports `serving_default`, and `classify` for clients that send serialized tf.Examples."""
    names = tf.constant([str(digit) for digit in range(CLASSES)])

    def predict(image: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"probabilities": tf.nn.softmax(logits(v, image))}

    def classify(inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        features = tf.io.parse_example(inputs, {"image": tf.io.FixedLenFeature([8, 8], tf.float32)})
        scores = tf.nn.softmax(logits(v, features["image"]))
        classes = tf.tile(names[tf.newaxis], [tf.shape(scores)[0], 1])
        return {"classes": tf.ensure_shape(classes, [None, CLASSES]), "scores": scores}

    image_spec = tf.TensorSpec([None, 8, 8], tf.float32, name="image")
    inputs_spec = tf.TensorSpec([None], tf.string, name="inputs")
    signatures = {
        "serving_default": tf.function(predict, input_signature=[image_spec]),
        "classify": tf.function(classify, input_signature=[inputs_spec]),
    }
    export(v, signatures, folder)


def main() -> None:
    make_repeatable(SEED)
    digits = load_digits()
    images, held_images, labels, held_labels = train_test_split(
        digits.images.astype(np.float32), digits.target, test_size=0.2, stratify=digits.target, random_state=SEED
    )
    save(train(images, labels), HERE / "1")

    served = tf.saved_model.load(str(HERE / "1")).signatures["serving_default"]
    answers = served(image=tf.constant(held_images))["probabilities"].numpy().argmax(axis=1)
    accuracy = float(np.mean(answers == held_labels))
    print(f"held-out accuracy {accuracy:.2%} on {len(held_labels)} digits ({len(labels)} trained on)")
    if accuracy < LEAST_ACCURACY:
        sys.exit(f"below {LEAST_ACCURACY:.0%}")

    facts = {"held_out_accuracy": round(accuracy, 4), "held_out_count": len(held_labels)}
    chosen = zip(held_images[:SAMPLES], held_labels[:SAMPLES], strict=True)
    write_samples(
        HERE / "samples.json",
        facts,
        ({"image": image.astype(int).tolist(), "label": int(label)} for image, label in chosen),
    )


if __name__ == "__main__":
    main()
