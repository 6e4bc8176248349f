"""SavedModels that only these tests need. `make_...(path)` writes folder `path` ('.../name/1')."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from tests.support.savedmodels import DTYPES

#: The Open Inference Protocol has no complex numbers.
V2_DTYPES = tuple(name for name in DTYPES if not name.startswith("complex"))


def make_v2_dtypes(path: Path) -> None:
    """One input [batch, columns] of every type in V2_DTYPES, each output `<type>_out` equal to its input `<type>`."""
    _save_echo(path, {name: [None, None] for name in V2_DTYPES})


def make_v2_scalars(path: Path) -> None:
    """As `v2_dtypes`, of rank 0."""
    _save_echo(path, {name: [] for name in V2_DTYPES})


def make_json_dtypes(path: Path) -> None:
    """As `v2_dtypes` without the types that some client cannot write as JSON."""
    _save_echo(path, {name: [None, None] for name in V2_DTYPES if name not in ("bfloat16", "half")})


def make_classic(path: Path) -> None:
    """classify and regress from tf.Examples with the feature `age`: labels young and old, and twice the age."""

    def age_of(examples: Any) -> Any:
        feature = tf.io.FixedLenFeature([1], tf.float32, default_value=[0.0])
        return tf.io.parse_example(examples, {"age": feature})["age"]

    def classify(inputs: Any) -> Any:
        age = age_of(inputs)
        labels = tf.tile(tf.constant([["young", "old"]]), [tf.shape(age)[0], 1])
        return {"classes": labels, "scores": tf.concat([100.0 - age, age], axis=1)}

    module = tf.Module()
    specs = [tf.TensorSpec([None], tf.string, name="inputs")]
    module.classify = tf.function(classify, input_signature=specs)
    module.regress = tf.function(lambda inputs: {"outputs": 2.0 * age_of(inputs)}, input_signature=specs)
    tf.saved_model.save(module, str(path), signatures={"classify": module.classify, "regress": module.regress})


def make_simple(path: Path) -> None:
    """Triton's `simple`: OUTPUT0 and OUTPUT1 are the sum and the difference of INPUT0 and INPUT1, all [batch, 16]."""
    _save_sum_and_difference(path, tf.int32, tf.identity, tf.identity)


def make_simple_string(path: Path) -> None:
    """The same of numbers in strings."""
    _save_sum_and_difference(path, tf.string, lambda text: tf.strings.to_number(text, tf.int32), tf.strings.as_string)


def _save_sum_and_difference(path: Path, dtype: Any, read: Any, write: Any) -> None:
    def compute(first: Any, second: Any) -> Any:
        first, second = read(first), read(second)
        return {"OUTPUT0": write(first + second), "OUTPUT1": write(first - second)}

    module = tf.Module()
    specs = [tf.TensorSpec([None, 16], dtype, name=name) for name in ("INPUT0", "INPUT1")]
    module.compute = tf.function(compute, input_signature=specs)
    tf.saved_model.save(module, str(path), signatures=module.compute)


def make_image(path: Path) -> None:
    """`colours` [batch, 3] are the means of the colours of `pixels` [batch, 4, 4, 3]; its classes have labels."""
    module = tf.Module()
    spec = tf.TensorSpec([None, 4, 4, 3], tf.float32, name="pixels")
    module.mean = tf.function(lambda pixels: {"colours": tf.reduce_mean(pixels, [1, 2])}, input_signature=[spec])
    tf.saved_model.save(module, str(path), signatures=module.mean)
    (path / "assets.extra").mkdir()
    (path / "assets.extra" / "labels.txt").write_text("red\ngreen\nblue\n")


def _save_echo(path: Path, shapes: dict[str, Any]) -> None:
    specs = [tf.TensorSpec(shape, getattr(tf, name), name=name) for name, shape in shapes.items()]

    def echo(*values: Any) -> Any:
        return {f"{name}_out": tf.identity(value) for name, value in zip(shapes, values, strict=True)}

    module = tf.Module()
    module.echo = tf.function(echo, input_signature=specs)
    tf.saved_model.save(module, str(path), signatures=module.echo)
