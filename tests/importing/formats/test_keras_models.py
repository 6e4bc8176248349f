"""What a model of Keras becomes beside plain arrays, and by which library a file is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from app.importing.formats import keras_archive, keras_hdf5
from app.importing.formats.keras_parts import libraries, loading
from app.importing.made_inputs import made_inputs
from app.importing.order import CannotImport, ImportOrder
from app.importing.source import Source
from tests.importing.formats import keras_zoo as zoo
from tests.importing.formats.proven import answers, proven


def source_of(path: Path, *, trust: bool = False) -> Source:
    reader = keras_archive.read if path.suffix == ".keras" else keras_hdf5.read
    return reader(path, ImportOrder(str(path), "", trust=trust, memory_bytes=1 << 32))


def saved(maker: zoo.Maker, library: str, path: Path) -> tuple[Any, Path]:
    model = zoo.made(maker, library)
    return model, zoo.save(model, path)


# --- inputs that are no plain arrays ---


def test_ragged_rows_are_values_and_row_splits(tmp_path: Path) -> None:
    model, path = saved(zoo.ragged_words, "tf_keras", tmp_path / "words.keras")
    signature = proven(source_of(path), tmp_path / "1")["serving_default"]
    assert signature.ragged == {"words": ("words_1",)}
    rows = {"words": np.array([1, 2, 3, 4], np.int64), "words_1": np.array([0, 1, 4], np.int64)}
    expected = model(zoo.library("tensorflow").ragged.constant([[1], [2, 3, 4]]), training=False)
    np.testing.assert_allclose(answers(tmp_path / "1", "serving_default", rows)["scores"], expected, atol=1e-6)


@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_sparse_rows_are_indices_values_and_shape(library: str, tmp_path: Path) -> None:
    model, path = saved(zoo.sparse_bags, library, tmp_path / "bags.keras")
    signature = proven(source_of(path), tmp_path / "1")["serving_default"]
    assert [tuple(each) for each in signature.sparse] == [("bag", "bag_1", "bag_2")]
    dense = np.zeros((2, 10), np.float32)
    dense[0, 3], dense[1, 9] = 2, -1
    rows = {
        "bag": np.array([[0, 3], [1, 9]]),
        "bag_1": np.array([2, -1], np.float32),
        "bag_2": np.array([2, 10]),
    }
    expected = model(zoo.library("tensorflow").sparse.from_dense(dense), training=False)
    np.testing.assert_allclose(answers(tmp_path / "1", "serving_default", rows)["scores"], expected, atol=1e-6)


# --- sizes ---


def test_a_fixed_number_of_rows_becomes_free_and_is_told(tmp_path: Path) -> None:
    source = source_of(saved(zoo.one_row, "keras", tmp_path / "one.keras")[1])
    assert source.notes == ["its number of rows is free (the source has 1)"]
    (endpoint,) = source.endpoints
    rows = {"image": np.random.default_rng(2).random((3, 6, 6, 2), np.float32)}
    alone = [endpoint.run({"image": rows["image"][n : n + 1]})["scores"] for n in range(3)]
    np.testing.assert_array_equal(endpoint.run(rows)["scores"], np.concatenate(alone))


def test_rows_that_meet_stay_as_many_as_the_source_has(tmp_path: Path) -> None:
    def mixing(keras: Any) -> Any:
        rows = keras.Input(batch_shape=(2, 3), name="rows")
        return keras.Model(rows, keras.ops.reshape(rows, (2, 3)) - keras.ops.mean(rows, axis=0, keepdims=True))

    source = source_of(saved(mixing, "keras", tmp_path / "mixing.keras")[1])
    assert source.notes == ["its number of rows is fixed by its layers"]
    assert source.endpoints[0].inputs["rows"].shape == (2, 3)


def test_the_sizes_of_the_source_are_told_where_they_became_free(tmp_path: Path) -> None:
    source = source_of(saved(zoo.masks, "keras", tmp_path / "masks.keras")[1])
    assert source.endpoints[0].usual == {"image": (None, 16, 16, 3)}
    assert source.notes == ["free sizes of image (the source has 16 x 16)"]


def test_a_size_is_found_with_which_a_model_of_free_sizes_runs(tmp_path: Path) -> None:
    def cropped(keras: Any) -> Any:
        rows = keras.Input((None, 2), name="rows")
        return keras.Model(rows, keras.layers.Cropping1D(400)(keras.layers.Conv1D(3, 3)(rows)))

    source = source_of(saved(cropped, "keras", tmp_path / "cropped.keras")[1])
    assert source.endpoints[0].usual == {"rows": (None, 1024, 2)}
    assert proven(source, tmp_path / "1")


# --- names ---


def test_outputs_of_one_layer_are_numbered(tmp_path: Path) -> None:
    def twice(keras: Any) -> Any:
        one, two = keras.Input((2,), name="a"), keras.Input((2,), name="b")
        shared = keras.layers.Dense(2, name="shared")
        return keras.Model([one, two], [shared(one), shared(two)])

    source = source_of(saved(twice, "tf_keras", tmp_path / "twice.h5")[1])
    assert sorted(proven(source, tmp_path / "1")["serving_default"].outputs) == ["shared", "shared_1"]


def test_an_input_has_the_name_of_its_key_where_the_model_is_called_by_keys(tmp_path: Path) -> None:
    def keyed(keras: Any) -> Any:
        inputs = {"height": keras.Input((1,), name="x"), "width": keras.Input((1,), name="y")}
        area = keras.layers.Multiply(name="area")([inputs["height"], inputs["width"]])
        return keras.Model(inputs, area)

    signature = proven(source_of(saved(keyed, "keras", tmp_path / "keyed.keras")[1]), tmp_path / "1")
    assert sorted(signature["serving_default"].inputs) == ["height", "width"]


# --- libraries ---


def test_a_file_of_keras_2_is_read_by_tf_keras_and_one_of_keras_3_by_keras(tmp_path: Path) -> None:
    for library, file, read_by in (
        ("tf_keras", "two.keras", "tf_keras"),
        ("tf_keras", "two.h5", "tf_keras"),
        ("keras", "three.keras", "Keras"),
        ("keras", "three.h5", "Keras"),
    ):
        source = source_of(saved(zoo.mlp, library, tmp_path / file)[1])
        assert f", read by {read_by} " in source.format


@pytest.mark.parametrize(
    "maker",
    [zoo.mlp, zoo.masks, zoo.columns, zoo.both_ways, zoo.mobile_images, zoo.masked_tokens],
    ids=lambda maker: maker.__name__,
)
def test_keras_3_reads_a_file_of_keras_2_as_tf_keras_does(
    maker: zoo.Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(maker, "tf_keras", tmp_path / "model.h5")[1]
    by_keras_2 = source_of(path)
    for module in (libraries, loading):
        monkeypatch.setattr(module, "has_tf_keras", lambda: False)
    by_keras_3 = source_of(path)
    assert "read by Keras 3" in by_keras_3.format
    one, other = (
        proven(source, tmp_path / version)["serving_default"]
        for source, version in ((by_keras_2, "1"), (by_keras_3, "2"))
    )
    assert [str(each) for each in one.inputs.values()] == [str(each) for each in other.inputs.values()]
    assert one.outputs.keys() == other.outputs.keys()
    rows = next(iter(made_inputs(one, {}, by_keras_2.endpoints[0].usual)))
    expected, actual = (answers(tmp_path / version, "serving_default", rows) for version in ("1", "2"))
    for name, values in expected.items():
        np.testing.assert_allclose(actual[name], values, rtol=0, atol=1e-6)


def test_without_tf_keras_a_file_that_keras_3_cannot_read_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(zoo.tensorflow_functions, "tf_keras", tmp_path / "model.h5")[1]
    for module in (libraries, loading):
        monkeypatch.setattr(module, "has_tf_keras", lambda: False)
    with pytest.raises(CannotImport, match=r"pip install 'ferry-serving\[import\]'"):
        source_of(path)


def test_an_archive_in_the_older_form_of_keras_is_hdf5(tmp_path: Path) -> None:
    path = saved(zoo.mlp, "tf_keras", tmp_path / "model.h5")[1].rename(tmp_path / "model.keras")
    assert "HDF5" in source_of(path).format


def test_an_hdf5_file_whose_model_does_not_tell_its_input(tmp_path: Path) -> None:
    model, path = saved(zoo.without_input, "tf_keras", tmp_path / "model.h5")
    with h5py.File(path, "r+") as file:
        config = json.loads(file.attrs["model_config"])
        config["config"].pop("build_input_shape", None)
        config["config"]["layers"] = [each for each in config["config"]["layers"] if each["class_name"] == "Dense"]
        for layer in config["config"]["layers"]:
            layer["config"].pop("batch_input_shape", None)
        file.attrs["model_config"] = json.dumps(config)
    (name,) = proven(source_of(path), tmp_path / "1")["serving_default"].inputs
    rows = np.random.default_rng(3).random((4, 7), np.float32)
    (found,) = answers(tmp_path / "1", "serving_default", {name: rows}).values()
    np.testing.assert_allclose(found, model(rows), atol=1e-6)


# --- trust ---


@pytest.mark.parametrize(("library", "file"), [("keras", "model.keras"), ("tf_keras", "model.h5")])
def test_a_lambda_layer_runs_with_trust(library: str, file: str, tmp_path: Path) -> None:
    def lambda_layer(keras: Any) -> Any:
        rows = keras.Input((2,), name="rows")
        return keras.Model(rows, keras.layers.Lambda(lambda x: x * 2, output_shape=(2,), name="twice")(rows))

    path = saved(lambda_layer, library, tmp_path / file)[1]
    proven(source_of(path, trust=True), tmp_path / "1")
    rows = np.array([[1, 2]], np.float32)
    np.testing.assert_array_equal(answers(tmp_path / "1", "serving_default", {"rows": rows})["twice"], 2 * rows)


def test_a_class_of_an_installed_module_is_imported_with_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "layers_of_mine.py").write_text(
        "import keras\nclass Doubled(keras.layers.Layer):\n    def call(self, x):\n        return 2 * x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def own_class(keras: Any) -> Any:
        rows = keras.Input((2,), name="rows")
        return keras.Model(rows, zoo.library("layers_of_mine").Doubled(name="twice")(rows))

    path = saved(own_class, "keras", tmp_path / "model.keras")[1]
    with pytest.raises(CannotImport, match=r"is a 'layers_of_mine.Doubled', which is no class of Keras"):
        source_of(path)
    proven(source_of(path, trust=True), tmp_path / "1")
    rows = np.array([[1, 2]], np.float32)
    np.testing.assert_array_equal(answers(tmp_path / "1", "serving_default", {"rows": rows})["twice"], 2 * rows)
