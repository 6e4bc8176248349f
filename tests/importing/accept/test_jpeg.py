"""`--accept jpeg`: what a model gets of an image file is what Keras reads of it."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.applications.imagenet_utils import preprocess_input

from app.core.inference import Array, string_array
from app.importing.accept.jpeg import image_front
from app.importing.accept.pixels import RANGES
from app.importing.formats import read
from app.importing.order import CannotImport, ImportOrder
from tests.importing.accept.sources import identity, imported, mean_colours, spec
from tests.support.bodies import image
from tests.support.processes import ROOT

#: A photo, smoother than noise: 40x50 pixels.
PHOTO = np.asarray(
    np.add.outer(np.arange(40) * 4, np.arange(50))[..., None] + np.array([0, 20, 40]), np.uint8
)  # fmt: skip


def given(files: list[bytes], shape: tuple[int | None, ...], pixels: str = "", dtype: Any = tf.float32) -> Array:
    """The images that a model with an input of this shape gets: in the graph, which must be as in the oracle."""
    front = image_front(identity({"x": spec(*shape, dtype=dtype)}).endpoints[0], pixels)
    in_graph = tf.function(front.call, input_signature=[front.spec])(tf.constant(files))["x"].numpy()
    oracle = front.run(string_array(files))["x"]
    assert in_graph.dtype == oracle.dtype == tf.as_dtype(dtype).as_numpy_dtype
    np.testing.assert_allclose(in_graph.astype(np.float64), oracle.astype(np.float64), rtol=1e-5, atol=1e-4)
    return np.asarray(in_graph)


def test_images_are_read_and_resized_as_keras_does_for_training(tmp_path: Path) -> None:
    (tmp_path / "cats").mkdir()
    files = [image(PHOTO, "JPEG"), image(PHOTO[:30], "PNG"), image(PHOTO[:, :20], "BMP")]
    for number, (file, ending) in enumerate(zip(files, ("jpg", "png", "bmp"), strict=True)):
        (tmp_path / "cats" / f"{number}.{ending}").write_bytes(file)
    dataset = keras.utils.image_dataset_from_directory(
        tmp_path, shuffle=False, image_size=(16, 24), batch_size=None, verbose=False
    )
    expected = np.stack([images.numpy() for images, _ in dataset])
    np.testing.assert_allclose(given(files, (None, 16, 24, 3)), expected, atol=1e-3)


@pytest.mark.parametrize(("pixels", "mode"), [("-1..1", "tf"), ("caffe", "caffe"), ("torch", "torch")])
def test_ranges_are_those_of_keras_applications(pixels: str, mode: str) -> None:
    values = np.random.default_rng(1).uniform(0, 255, (2, 3, 4, 3)).astype(np.float32)
    np.testing.assert_allclose(
        np.asarray(RANGES[pixels](values), np.float32), preprocess_input(values.copy(), mode=mode), atol=1e-4
    )
    np.testing.assert_allclose(RANGES[pixels](tf.constant(values)), RANGES[pixels](values), atol=1e-4)


def test_pixels_are_as_decoded_unless_a_range_is_named() -> None:
    file = [image(PHOTO, "PNG")]
    np.testing.assert_array_equal(given(file, (None, 40, 50, 3))[0], PHOTO)
    np.testing.assert_allclose(given(file, (None, 40, 50, 3), "0..1")[0], PHOTO / 255, rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((None, 3, 40, 50), PHOTO.transpose(2, 0, 1)),
        ((None, 40, 50, None), PHOTO),
        ((None, 40, 50, 4), np.concatenate([PHOTO, np.full((40, 50, 1), 255)], 2)),
        ((None, None, None, 3), PHOTO),
        ((1, 40, 50, 3), PHOTO),
    ],
    ids=["channels first", "free channels", "RGBA", "free size", "one row"],
)
def test_axes_are_those_of_the_model(shape: tuple[int | None, ...], expected: Array) -> None:
    np.testing.assert_array_equal(given([image(PHOTO, "PNG")], shape)[0], expected)


@pytest.mark.parametrize("shape", [(None, 40, 50, 1), (None, 40, 50)])
def test_one_channel_is_gray(shape: tuple[int | None, ...]) -> None:
    gray = PHOTO[..., 0]
    np.testing.assert_array_equal(given([image(gray, "PNG")], shape)[0].reshape(40, 50), gray)


@pytest.mark.parametrize("dtype", [tf.uint8, tf.int32, tf.float16, tf.float64, tf.bfloat16])
def test_types_are_those_of_the_model(dtype: Any) -> None:
    resized = given([image(PHOTO, "PNG")], (None, 7, 9, 3))[0]
    expected = resized if dtype.is_floating else np.round(resized)
    np.testing.assert_allclose(
        given([image(PHOTO, "PNG")], (None, 7, 9, 3), "", dtype)[0].astype(float), expected, 0.01
    )


def test_of_a_gif_the_first_frame_is_read() -> None:
    frames = image(np.full((4, 5, 3), 255, np.uint8), "GIF")
    np.testing.assert_array_equal(given([frames], (None, 4, 5, 3))[0], np.full((4, 5, 3), 255))


def test_sizes_that_the_reader_freed_do_not_change_what_images_are_resized_to(tmp_path: Path) -> None:
    source = identity({"x": spec(None, None, None, 3)}, usual={"x": [None, 6, 8, 3]})
    proven, notes = imported(source, tmp_path / "1", accept="jpeg", rename={"x": "photo"})
    assert str(proven.signatures["serving_default"].inputs["photo_bytes"]) == "string[?]"
    assert str(proven.signatures["serving_default"].outputs["x_out"]) == "float32[?,6,8,3]"
    assert str(proven.signatures["tensors"].inputs["photo"]) == "float32[?,?,?,3]"
    assert "images are decoded to RGB, resized to 6x8 (bilinear), pixels 0..255" in notes[0]


def test_other_inputs_stay(tmp_path: Path) -> None:
    source = identity({"photo": spec(None, 4, 5, 3), "age": spec(None), "table": spec(None, 3, 2)})
    proven, _ = imported(source, tmp_path / "1", accept="jpeg")
    assert sorted(proven.signatures["serving_default"].inputs) == ["age", "photo_bytes", "table"]
    assert sorted(proven.signatures["tensors"].inputs) == ["age", "photo", "table"]


def test_an_import_is_proven_with_images(tmp_path: Path) -> None:
    proven, notes = imported(mean_colours(), tmp_path / "1", accept="jpeg", pixels="-1..1")
    assert {call.signature for call in proven.calls} == {"serving_default", "tensors"}
    assert proven.result.difference < 1e-6
    assert notes == [
        "images are decoded to RGB, resized to 16x24 (bilinear), pixels -1..1 (--pixels names another range); "
        "signature 'tensors' takes the model's own inputs"
    ]


def test_samples_are_files_or_inputs_of_the_model(tmp_path: Path) -> None:
    file = image(PHOTO, "PNG")
    of_files = {"instances": [{"b64": base64.b64encode(file).decode()}]}
    own = {"signature_name": "tensors", "instances": np.ones((2, 16, 24, 3)).tolist()}
    for number, (document, signature) in enumerate([(of_files, "serving_default"), (own, "tensors")]):
        (tmp_path / "samples.json").write_text(json.dumps(document))
        samples = str(tmp_path / "samples.json")
        proven, _ = imported(mean_colours(), tmp_path / f"{number}", accept="jpeg", samples=samples)
        (call,) = (call for call in proven.calls if call.signature == signature)
        assert len(call.inputs["photo_bytes" if number == 0 else "photo"]) == 1 + number


def test_a_saved_model_is_exported_anew(tmp_path: Path) -> None:
    digits = ROOT / "models/digits/1"
    proven, _ = imported(read("saved_model", digits, ImportOrder(str(digits), "")), tmp_path / "1", accept="jpeg")
    assert {name: list(each.inputs) for name, each in proven.signatures.items()} == {
        "serving_default": ["image_bytes"],
        "tensors": ["image"],
        "classify": ["inputs"],
    }


def test_a_saved_model_keeps_its_assets(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("dark\nlight\n")
    model = tf.Module()
    initial = tf.lookup.TextFileInitializer(
        str(tmp_path / "words.txt"),
        tf.int64,
        tf.lookup.TextFileIndex.LINE_NUMBER,
        tf.string,
        tf.lookup.TextFileIndex.WHOLE_LINE,
    )
    model.words = tf.lookup.StaticHashTable(initial, "?")

    def serve(photo: Any) -> Any:
        return {"word": model.words.lookup(tf.cast(tf.reduce_mean(photo, [1, 2, 3]) > 127, tf.int64))}

    function = tf.function(serve, input_signature=[spec(None, 4, 4, 3)])
    tf.saved_model.save(model, str(tmp_path / "source"), signatures=function)
    source = read("saved_model", tmp_path / "source", ImportOrder(str(tmp_path / "source"), ""))
    imported(source, tmp_path / "1", accept="jpeg")
    loaded = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    files = [image(np.full((5, 5, 3), level, np.uint8), "PNG") for level in (0, 255)]
    assert loaded(photo_bytes=tf.constant(files))["word"].numpy().tolist() == [b"dark", b"light"]


def test_files_that_no_graph_can_be_made_of_are_told(tmp_path: Path) -> None:
    source = replace(identity({"x": spec(None, 4, 4, 3)}), files={"model.tflite": tmp_path / "model.tflite"})
    with pytest.raises(CannotImport, match="--accept changes an export; this source"):
        imported(source, tmp_path / "1", accept="jpeg")


_IMAGE = spec(None, 4, 4, 3)

_WRONG: list[tuple[dict[str, Any], dict[str, str], str]] = [
    ({"a": _IMAGE, "b": _IMAGE}, {}, "several inputs may be images; the inputs are a float32[?,4,4,3], b float32"),
    ({"a": spec(None, 4)}, {}, "no input is an image [?, height, width, channels]; the inputs are a float32[?,4]"),
    ({"a": spec(None, 4, 4, 7)}, {}, "input 'a' has 7 channels; images have 1, 3 or 4"),
    ({"a": spec(None, 32, None, 1)}, {}, "input 'a' [?,32,?,1] leaves one of height and width free; both or none"),
    ({"a": spec(None, 4, 4, 3, dtype=tf.int8)}, {}, "input 'a' takes int8, into which pixels 0..255 do not fit"),
    ({"a": spec(None, 4, 4, 3, dtype=tf.uint8)}, {"pixels": "0..1"}, "takes uint8, into which pixels 0..1 do not fit"),
    ({"a": spec(None, 4, 4, 1)}, {"pixels": "caffe"}, "--pixels caffe is for 3 channels; input 'a' has 1"),
    ({"a": _IMAGE}, {"pixels": "0-1"}, "--pixels 0-1: expected 0..255, 0..1, -1..1, caffe, torch"),
    ({"a": _IMAGE, "a_bytes": spec(None)}, {}, "--accept makes an input 'a_bytes'; the source has one"),
]


@pytest.mark.parametrize(("inputs", "order", "message"), _WRONG, ids=[message[:40] for *_, message in _WRONG])
def test_what_cannot_be_is_told(inputs: Any, order: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(CannotImport) as raised:
        imported(identity(inputs), tmp_path / "1", **{"accept": "jpeg", **order})
    assert message in str(raised.value)
    assert not (tmp_path / "1").exists()
