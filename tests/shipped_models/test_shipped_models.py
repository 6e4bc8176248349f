"""The committed models are what their READMEs say: names, types, sizes, accuracy, neutral padding."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

MODELS = Path(__file__).parents[2] / "models"
LABELS = 3


def load(name: str) -> Any:
    return tf.saved_model.load(str(MODELS / name / "1"))


@pytest.fixture(scope="module")
def digits() -> Any:
    return load("digits")


@pytest.fixture(scope="module")
def text() -> Any:
    return load("text").signatures["serving_default"]


def samples(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((MODELS / name / "samples.json").read_text(encoding="utf-8"))
    return loaded


def digit_images() -> np.ndarray:
    return np.array([sample["image"] for sample in samples("digits")["samples"]], np.float32)


def padded(rows: list[list[int]], length: int) -> tf.Tensor:
    return tf.constant([row + [0] * (length - len(row)) for row in rows], tf.int32)


def labels(name: str) -> np.ndarray:
    return np.array([sample["label"] for sample in samples(name)["samples"]])


def tokens() -> list[list[int]]:
    return [sample["tokens"] for sample in samples("text")["samples"]]


def interface(signature: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    def described(specs: dict[str, Any]) -> dict[str, Any]:
        return {name: (spec.dtype.name, tuple(spec.shape)) for name, spec in specs.items()}

    return described(signature.structured_input_signature[1]), described(signature.structured_outputs)


@pytest.mark.parametrize("name", ["digits", "text"])
def test_is_small(name: str) -> None:
    size = sum(file.stat().st_size for file in (MODELS / name / "1").rglob("*") if file.is_file())
    assert 0 < size < 1_000_000


def test_digits_signatures(digits: Any) -> None:
    assert set(digits.signatures) == {"serving_default", "classify"}
    assert interface(digits.signatures["serving_default"]) == (
        {"image": ("float32", (None, 8, 8))},
        {"probabilities": ("float32", (None, 10))},
    )
    assert interface(digits.signatures["classify"]) == (
        {"inputs": ("string", (None,))},
        {"classes": ("string", (None, 10)), "scores": ("float32", (None, 10))},
    )


def test_text_signature(text: Any) -> None:
    assert interface(text) == (
        {"tokens": ("int32", (None, None))},
        {"probabilities": ("float32", (None, LABELS)), "token_scores": ("float32", (None, None))},
    )


def test_digit_samples_are_raw_pixels() -> None:
    images = digit_images()
    assert images.shape == (64, 8, 8)
    assert (images.min(), images.max()) == (0, 16)
    assert samples("digits")["held_out_accuracy"] >= 0.97


def test_digits_are_read_right(digits: Any) -> None:
    probabilities = digits.signatures["serving_default"](image=tf.constant(digit_images()))["probabilities"].numpy()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    assert np.mean(probabilities.argmax(axis=1) == labels("digits")) >= 0.97


def example(image: np.ndarray) -> bytes:
    values = tf.train.Feature(float_list=tf.train.FloatList(value=image.ravel()))
    features = tf.train.Features(feature={"image": values})
    serialized: bytes = tf.train.Example(features=features).SerializeToString()
    return serialized


def test_classify_agrees_with_serving_default(digits: Any) -> None:
    images = digit_images()
    probabilities = digits.signatures["serving_default"](image=tf.constant(images))["probabilities"]
    classified = digits.signatures["classify"](inputs=tf.constant([example(image) for image in images]))
    np.testing.assert_allclose(classified["scores"], probabilities, atol=1e-6)
    assert classified["classes"].numpy().tolist() == [[str(digit).encode() for digit in range(10)]] * len(images)


def test_classify_rejects_an_example_without_image(digits: Any) -> None:
    empty = tf.train.Example().SerializeToString()
    with pytest.raises(tf.errors.InvalidArgumentError, match="image"):
        digits.signatures["classify"](inputs=tf.constant([empty]))


def test_text_samples_are_bytes_plus_one() -> None:
    for sample in samples("text")["samples"]:
        assert sample["tokens"] == [byte + 1 for byte in sample["text"].encode()]
    assert set(labels("text")) == set(range(LABELS)) == set(range(len(samples("text")["labels"])))


def test_lines_are_told_apart_far_better_than_by_the_majority(text: Any) -> None:
    rows = tokens()
    answers = text(tokens=padded(rows, max(map(len, rows))))["probabilities"].numpy().argmax(axis=1)
    truth = labels("text")
    majority = np.bincount(truth).max() / len(truth)
    assert np.mean(answers == truth) >= 0.9 > majority + 0.3


def test_text_padding_is_neutral(text: Any) -> None:
    rows = tokens()
    length = max(map(len, rows)) + 9
    together = text(tokens=padded(rows, length))
    assert together["token_scores"].shape == (len(rows), length)
    for index, row in enumerate(rows):
        alone = text(tokens=padded([row], len(row)))
        np.testing.assert_allclose(together["probabilities"][index], alone["probabilities"][0], atol=1e-5)
        np.testing.assert_allclose(together["token_scores"][index, : len(row)], alone["token_scores"][0], atol=1e-5)
        assert not np.any(together["token_scores"][index, len(row) :])


@pytest.mark.parametrize("length", [0, 4])
def test_text_without_tokens_has_an_answer(text: Any, length: int) -> None:
    answer = text(tokens=tf.zeros([2, length], tf.int32))
    np.testing.assert_allclose(answer["probabilities"].numpy().sum(axis=1), 1, atol=1e-5)
    assert answer["token_scores"].shape == (2, length)


@pytest.mark.parametrize("token", [-1, 257])
def test_text_rejects_tokens_outside_the_vocabulary(text: Any, token: int) -> None:
    with tf.device("/CPU:0"), pytest.raises(tf.errors.InvalidArgumentError, match="not in"):
        text(tokens=tf.constant([[1, token]], tf.int32))
