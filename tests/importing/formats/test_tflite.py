"""The reader of TFLite files: taken as they are, proven by LiteRT's interpreter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from app.importing.formats.tflite import read
from app.importing.order import CannotImport, ImportOrder
from app.importing.source import Source
from tests.importing.formats.proven import proven


def source_of(path: Path) -> Source:
    return read(path, ImportOrder(str(path), ""))


def tflite(path: Path) -> Path:
    module = tf.Module()
    module.call = tf.function(lambda x: {"y": x * 2.0}, input_signature=[tf.TensorSpec([1, 3], tf.float32, name="x")])
    converter = tf.lite.TFLiteConverter.from_concrete_functions([module.call.get_concrete_function()], module)
    path.write_bytes(converter.convert())
    return path


@pytest.mark.filterwarnings("ignore")  # of the converter
def test_a_file_is_taken_as_it_is_and_proven(tmp_path: Path) -> None:
    file = tflite(tmp_path / "twice.tflite")
    source = source_of(file)
    assert dict(source.files) == {"model.tflite": file}
    inputs = {name: np.arange(6, dtype=np.float32).reshape(2, 3) for name in source.endpoints[0].inputs}
    (found,) = source.endpoints[0].run(inputs).values()
    assert found.tolist() == [[0, 2, 4], [6, 8, 10]]
    assert "serving_default" in proven(source, tmp_path / "1")
    assert (tmp_path / "1" / "model.tflite").read_bytes() == file.read_bytes()


def test_what_is_no_tflite_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.tflite").write_bytes(b"something else")
    with pytest.raises(CannotImport, match=r"model\.tflite"):
        source_of(tmp_path / "model.tflite")
