"""Trains the text model, which tells lines of English, Python and C apart: `python -m models.text.train`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from models.text.corpus import LABELS, Line, split_lines
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
EPOCHS = 6
BATCH = 64
TRAIN_PER_LABEL, HELD_PER_LABEL = 6000, 1000
LEAST_ACCURACY = 0.9
SAMPLES = 64
VOCABULARY = 257  # 0 is padding, a byte is its value + 1
WIDTH = 32


def tokenize(text: str) -> list[int]:
    return [byte + 1 for byte in text.encode()]


def pad(texts: Sequence[str]) -> np.ndarray:
    """[len(texts), longest] int32, filled up with 0."""
    rows = [tokenize(text) for text in texts]
    longest = max(map(len, rows))
    return np.array([row + [0] * (longest - len(row)) for row in rows], np.int32)


def make_variables() -> dict[str, tf.Variable]:
    return {
        "embedding": glorot(VOCABULARY, WIDTH),
        "conv1_kernel": glorot(5, WIDTH, WIDTH),
        "conv1_bias": zeros(WIDTH),
        "conv2_kernel": glorot(5, WIDTH, WIDTH),
        "conv2_bias": zeros(WIDTH),
        "attention_kernel": glorot(WIDTH, 1),
        "output_kernel": glorot(WIDTH, len(LABELS)),
        "output_bias": zeros(len(LABELS)),
    }


def forward(v: dict[str, tf.Variable], tokens: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """[batch, length] tokens -> [batch, labels] logits and [batch, length] attention.

    Every layer's padding positions are set to zero, which is what a convolution reads beyond
    the end of a text anyway: padded and unpadded texts give the same result.
    """
    mask = tf.cast(tokens != 0, tf.float32)[:, :, tf.newaxis]
    x = tf.gather(v["embedding"], tokens) * mask
    x = tf.nn.relu(tf.nn.conv1d(x, v["conv1_kernel"], 1, "SAME") + v["conv1_bias"]) * mask
    x = tf.nn.relu(tf.nn.conv1d(x, v["conv2_kernel"], 1, "SAME") + v["conv2_bias"]) * mask
    # tanh bounds the exponent, so that the softmax needs no maximum and an empty text is no special case.
    weights = tf.exp(4.0 * tf.tanh(tf.tensordot(x, v["attention_kernel"], 1))) * mask
    attention = tf.math.divide_no_nan(weights, tf.reduce_sum(weights, axis=1, keepdims=True))
    pooled = tf.reduce_sum(x * attention, axis=1)
    return pooled @ v["output_kernel"] + v["output_bias"], tf.squeeze(attention, -1)


def train(lines: Sequence[Line]) -> dict[str, tf.Variable]:
    variables = make_variables()
    rows = shuffled_batches(len(lines), BATCH, EPOCHS, np.random.default_rng(SEED))
    labels = np.array([line.label for line in lines])
    fit(
        lambda tokens, label: cross_entropy(label, forward(variables, tokens)[0]),
        list(variables.values()),
        [(pad([lines[index].text for index in batch]), labels[batch]) for batch in rows],
    )
    return variables


def save(v: dict[str, tf.Variable], folder: Path) -> None:
    def predict(tokens: tf.Tensor) -> dict[str, tf.Tensor]:
        logits, attention = forward(v, tokens)
        return {"probabilities": tf.nn.softmax(logits), "token_scores": attention}

    tokens_spec = tf.TensorSpec([None, None], tf.int32, name="tokens")
    export(v, {"serving_default": tf.function(predict, input_signature=[tokens_spec])}, folder)


def answers(served: tf.types.experimental.ConcreteFunction, lines: Sequence[Line]) -> Iterator[int]:
    for start in range(0, len(lines), BATCH):
        tokens = pad([line.text for line in lines[start : start + BATCH]])
        yield from served(tokens=tf.constant(tokens))["probabilities"].numpy().argmax(axis=1)


def main() -> None:
    make_repeatable(SEED)
    lines, held = split_lines(TRAIN_PER_LABEL, HELD_PER_LABEL, np.random.default_rng(SEED))
    save(train(lines), HERE / "1")

    served = tf.saved_model.load(str(HERE / "1")).signatures["serving_default"]
    labels = np.array([line.label for line in held])
    accuracy = float(np.mean(np.array(list(answers(served, held))) == labels))
    baseline = float(np.bincount(labels).max() / len(labels))
    print(f"held-out accuracy {accuracy:.2%}, majority baseline {baseline:.2%}, on {len(held)} lines", end=" ")
    print(f"of documents not trained on ({len(lines)} lines trained on)")
    if accuracy < LEAST_ACCURACY:
        sys.exit(f"below {LEAST_ACCURACY:.0%}")

    facts = {
        "labels": LABELS,
        "held_out_accuracy": round(accuracy, 4),
        "majority_baseline": round(baseline, 4),
        "held_out_count": len(held),
    }
    chosen = held[:SAMPLES]
    write_samples(
        HERE / "samples.json",
        facts,
        ({"text": line.text, "tokens": tokenize(line.text), "label": line.label} for line in chosen),
    )


if __name__ == "__main__":
    main()
