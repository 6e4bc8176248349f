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


def _save_echo(path: Path, shapes: dict[str, Any]) -> None:
    specs = [tf.TensorSpec(shape, getattr(tf, name), name=name) for name, shape in shapes.items()]

    def echo(*values: Any) -> Any:
        return {f"{name}_out": tf.identity(value) for name, value in zip(shapes, values, strict=True)}

    module = tf.Module()
    module.echo = tf.function(echo, input_signature=specs)
    tf.saved_model.save(module, str(path), signatures=module.echo)
