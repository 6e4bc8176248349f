"""Files are read without LiteRT, whatever bytes they hold."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
import tensorflow as tf

from app.runtime import missing_part_of, offline_signatures_of
from app.runtimes.litert.tflite_file import TFLiteFileError, labels_of, missing_part, read_tflite
from app.runtimes.litert.tflite_signatures import functions_of
from tests.support import savedmodels
from tests.support.tflite.tflite_models import convert, converted, write


def with_zip(content: bytes, files: dict[str, str]) -> bytes:
    """The content with files behind it, as the metadata of TFLite has them."""
    packed = io.BytesIO(content)
    with zipfile.ZipFile(packed, "a") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


def test_a_file_that_is_cut_short_anywhere_is_missing_a_part_or_reads_as_another(tmp_path: Path) -> None:
    content = converted(savedmodels.make_half_plus_two)
    write(content, tmp_path / "1")
    assert missing_part(tmp_path / "1") == ""
    for size in range(len(content)):
        with pytest.raises(TFLiteFileError) as error:
            functions_of(read_tflite(content[:size]), content)
        assert str(error.value) == f"model.tflite, of {size:,} bytes, is cut short or no TFLite model"


def test_wrong_bytes_are_told_or_read(tmp_path: Path) -> None:
    """Each byte in turn is replaced: nothing but TFLiteFileError may come of it."""
    content = converted(savedmodels.make_half_plus_two)
    faults = []
    for place in range(len(content)):
        for value in (0, 0x7F, 0xFF):
            changed = content[:place] + bytes([value]) + content[place + 1 :]
            try:
                functions_of(read_tflite(changed), changed)
            except TFLiteFileError as error:
                faults.append(str(error))
    assert faults
    assert not any("\n" in fault for fault in faults)


@pytest.mark.parametrize(
    ("graphs", "tensors", "name", "sizes"), [(3000, 3000, 1, 1), (1, 3000, 30_000, 1), (1, 3000, 1, 30_000)]
)
def test_parts_that_are_shared_are_not_read_for_ever(graphs: int, tensors: int, name: int, sizes: int) -> None:
    """A file of some KB may refer to as many parts as it likes, by referring to the same one again."""
    builder = flatbuffers.Builder()
    title = builder.CreateString("x" * name)
    shape = builder.CreateNumpyVector(np.ones(sizes, np.int32))
    builder.StartObject(8)
    builder.PrependUOffsetTRelativeSlot(0, shape, 0)
    builder.PrependUOffsetTRelativeSlot(3, title, 0)
    tensor = builder.EndObject()
    graph = _shared(builder, 4, 0, tensor, tensors)
    builder.Finish(_shared(builder, 8, 2, graph, graphs), b"TFL3")
    content = bytes(builder.Output())
    assert len(content) < 200_000
    with pytest.raises(TFLiteFileError, match="cut short or no TFLite model"):
        read_tflite(content)


def _shared(builder: Any, fields: int, field: int, table: int, times: int) -> int:
    """A table with a vector that refers to one table so many times."""
    builder.StartVector(4, times, 4)
    for _ in range(times):
        builder.PrependUOffsetTRelative(table)
    vector = builder.EndVector()
    builder.StartObject(fields)
    builder.PrependUOffsetTRelativeSlot(field, vector, 0)
    return int(builder.EndObject())


def test_a_signature_without_names_has_those_of_the_tensors() -> None:
    content = convert(lambda x: {"y": x + 1.0}, tf.TensorSpec([1, 2], tf.float32, name="x"))
    file = read_tflite(content)
    nameless = type(file)(file.graphs, ())
    (function,) = functions_of(nameless, content).by_name.values()
    assert (function.signature.name, function.key) == ("serving_default", None)
    assert list(function.inputs) == ["serving_default_x:0"]
    assert list(function.outputs) == ["PartitionedCall:0"]


def test_the_only_signature_answers_as_serving_default_too() -> None:
    content = convert(lambda x: {"y": x + 1.0}, tf.TensorSpec([1, 2], tf.float32, name="x"))
    renamed = content.replace(b"serving_default\0", b"my_own_function\0")
    assert set(functions_of(read_tflite(renamed), renamed).by_name) == {"my_own_function", "serving_default"}


def test_labels_come_from_the_file(tmp_path: Path) -> None:
    content = convert(
        lambda x: {"scores": tf.nn.softmax(x), "sum": tf.reduce_sum(x, 1)},
        tf.TensorSpec([None, 3], tf.float32, name="x"),
    )
    write(with_zip(content, {"labels.txt": "cat\ndog\nkäse\n"}), tmp_path / "m" / "1")
    read = offline_signatures_of("tensorflow")
    assert read is not None
    (signature,) = read(tmp_path / "m" / "1", (), ()).values()
    assert signature.labels == {"scores": ("cat", "dog", "käse")}


@pytest.mark.parametrize(
    "files", [{}, {"a.txt": "x", "b.txt": "y"}, {"a.txt": "x" * (2**20 + 1)}, {"a.bin": "x"}], ids=str.__len__ and None
)
def test_without_one_small_text_there_are_no_labels(files: dict[str, str]) -> None:
    assert labels_of(with_zip(b"TFL3 is not looked at", files)) == ()


def test_a_folder_is_examined_by_the_runtime_that_serves_it(tmp_path: Path) -> None:
    both = tmp_path / "both" / "1"
    savedmodels.make_half_plus_two(both)
    (both / "model.tflite").write_bytes(b"no TFLite model at all")
    by_tensorflow, by_litert = missing_part_of("tensorflow"), missing_part_of("litert")
    assert by_tensorflow is not None
    assert by_litert is not None
    assert by_tensorflow(both) == ""
    assert by_litert(both) == "model.tflite, of 22 bytes, is cut short or no TFLite model"
    (both / "saved_model.pb").unlink()
    assert by_tensorflow(both) == by_litert(both) != ""


def test_dtypes_are_those_of_requests() -> None:
    content = converted(savedmodels.make_every_dtype)
    (function,) = functions_of(read_tflite(content), content).by_name.values()
    kinds = {name: spec.dtype for name, spec in function.signature.inputs.items()}
    assert kinds == {name: getattr(tf, name).as_numpy_dtype for name in savedmodels.DTYPES if name != "string"} | {
        "string": np.dtype(object)
    }
