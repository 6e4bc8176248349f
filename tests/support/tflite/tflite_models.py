"""TFLite models for tests: SavedModels of `savedmodels`, converted by TensorFlow's converter."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tensorflow as tf

from tests.support.savedmodels import Make


@cache
def converted(make: Make) -> bytes:
    """The model that a `savedmodels.make_...` makes, as a TFLite file. Raises the converter's errors."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model" / "1"
        make(path)
        return convert_folder(path)


def convert_folder(path: Path) -> bytes:
    """The SavedModel in a folder, with all its signatures, as a TFLite file."""
    keys = list(tf.saved_model.load(str(path)).signatures)
    content: bytes = tf.lite.TFLiteConverter.from_saved_model(str(path), signature_keys=keys).convert()
    return content


def convert(function: Callable[..., Any], *specs: tf.TensorSpec, flex: bool = False, custom: bool = False) -> bytes:
    """A function as a TFLite file with one signature. `flex`, `custom`: where TFLite has no operation."""
    module = tf.Module()
    module.function = tf.function(function, input_signature=specs, autograph=False)
    concrete = module.function.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], module)
    if flex:
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
    converter.allow_custom_ops = custom
    content: bytes = converter.convert()
    return content


def write(content: bytes, path: Path) -> None:
    """Writes a version's folder `path` ('.../name/1')."""
    path.mkdir(parents=True)
    (path / "model.tflite").write_bytes(content)


def make_tflite(make: Make, path: Path) -> None:
    """Writes a version's folder with the model of a `savedmodels.make_...` in place of the SavedModel."""
    write(converted(make), path)


def beside_saved_model(make: Make, path: Path) -> None:
    """Writes a version's folder with the SavedModel and the TFLite model."""
    make(path)
    (path / "model.tflite").write_bytes(converted(make))
