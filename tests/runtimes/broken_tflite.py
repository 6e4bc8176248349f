"""Folders that hold no TFLite model that can be loaded. `make_...(path)` as in savedmodels."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from tests.support.savedmodels import make_image_net
from tests.support.tflite.tflite_models import convert, converted, write


def make_nothing(path: Path) -> None:
    """The folder does not even exist."""


def make_empty_folder(path: Path) -> None:
    path.mkdir(parents=True)


def make_empty_file(path: Path) -> None:
    write(b"", path)


def make_text(path: Path) -> None:
    write(b"this is no TFLite mo", path)


def make_cut_short(path: Path) -> None:
    write(converted(make_image_net)[:-1000], path)


def make_without_graphs(path: Path) -> None:
    """A flatbuffer with the identifier of TFLite, and a root table without fields."""
    write(b"\x10\0\0\0TFL3\x04\0\x04\0\0\0\0\0\x08\0\0\0", path)


def make_flex(path: Path) -> None:
    """An operation of TensorFlow that TFLite does not have."""
    write(convert(tf.strings.length, tf.TensorSpec([None], tf.string, name="input"), flex=True), path)


def make_custom(path: Path) -> None:
    """An operation that is left to the author of an interpreter."""
    write(convert(tf.math.erfinv, tf.TensorSpec([None], tf.float32, name="x"), custom=True), path)


def make_crashing(path: Path) -> None:
    """LiteRT divides the least whole number by -1, for which the processor has no answer: SIGFPE."""
    zeros = tf.TensorSpec([4], tf.int32, name="x")
    write(convert(lambda x: {"y": tf.math.floormod(x - 2**31, -1)}, zeros), path)
