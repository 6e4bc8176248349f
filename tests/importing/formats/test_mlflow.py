"""The reader of MLflow's folders: their layouts by the versions of MLflow, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

from app.importing.formats.mlflow import read
from app.importing.order import CannotImport, ImportOrder
from app.importing.source import Source
from app.repository.disk.importable import format_of
from tests.importing.formats.proven import proven
from tests.support.savedmodels import make_half_plus_two

# Keras asks numpy for arrays in a way that numpy 2 does not like.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

#: MLmodel of MLflow 3.17, as far as an import looks at it.
_KERAS = """\
flavors:
  python_function:
    data: data
    env:
      conda: conda.yaml
    loader_module: mlflow.tensorflow
  tensorflow:
    code: null
    data: data
    keras_version: 3.15.1
    model_type: keras
    save_format: tf
mlflow_version: 3.17.2
"""

#: MLmodel of MLflow 1.
_SAVED_MODEL = """\
flavors:
  tensorflow:
    meta_graph_tags: [serve]
    saved_model_dir: tfmodel
    signature_def_key: serving_default
"""


@pytest.fixture(scope="module")
def keras_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keras") / "model.keras"
    keras.Sequential([keras.Input((3,), name="features"), keras.layers.Dense(2, name="scores")]).save(file)
    return file


def made(folder: Path, mlmodel: str, **files: Path) -> Path:
    (folder / "data").mkdir(parents=True)
    (folder / "MLmodel").write_text(mlmodel)
    for name, file in files.items():
        shutil.copyfile(file, folder / "data" / name)
    return folder


def source_of(path: Path) -> Source:
    assert format_of(path) == "mlflow"
    return read(path, ImportOrder(str(path), ""))


@pytest.mark.parametrize("place", ["artifacts/model", "model", "artifacts", ""])
def test_a_model_of_keras_is_found_from_the_folder_of_its_run(tmp_path: Path, keras_file: Path, place: str) -> None:
    made(tmp_path / "run" / place, _KERAS, **{"model.keras": keras_file})
    source = source_of(tmp_path / "run")
    assert source.format.startswith("MLflow model (tensorflow), Keras 3")
    assert list(source.endpoints[0].inputs) == ["features"]


def test_a_model_of_keras_is_proven(tmp_path: Path, keras_file: Path) -> None:
    folder = made(tmp_path / "model", _KERAS, **{"model.keras": keras_file})
    assert list(proven(source_of(folder), tmp_path / "1")["serving_default"].outputs) == ["scores"]


def test_the_flavour_keras_has_the_same_files(tmp_path: Path, keras_file: Path) -> None:
    mlmodel = "flavors:\n  keras:\n    data: data\n    keras_backend: tensorflow\n"
    source = source_of(made(tmp_path / "model", mlmodel, **{"model.keras": keras_file}))
    assert source.format.startswith("MLflow model (keras)")


def test_a_savedmodel_of_mlflow_1_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = made(tmp_path / "model", _SAVED_MODEL)
    make_half_plus_two(folder / "tfmodel")
    signatures = proven(source_of(folder), tmp_path / "1")
    assert "serving_default" in signatures


def test_a_savedmodel_of_keras_2_lies_in_data(tmp_path: Path) -> None:
    folder = made(tmp_path / "model", _KERAS)
    make_half_plus_two(folder / "data" / "model")
    found = source_of(folder).endpoints[-1].run({"x": np.array([2.0], np.float32)})
    assert found["y"].tolist() == [3.0]


# --- what is refused ---


def test_another_flavour_is_told_what_to_do(tmp_path: Path) -> None:
    mlmodel = (
        "flavors:\n  python_function:\n    loader_module: mlflow.sklearn\n  sklearn:\n    pickled_model: model.pkl\n"
    )
    with pytest.raises(
        CannotImport, match=r"its flavours are python_function, sklearn of mlflow\.sklearn; expected is"
    ):
        source_of(made(tmp_path / "model", mlmodel))


def test_a_pickle_of_classes_is_not_read_and_named(tmp_path: Path, keras_file: Path) -> None:
    folder = made(tmp_path / "model", _KERAS, **{"custom_objects.cloudpickle": keras_file})
    (folder / "data" / "model.keras").write_bytes(b"no archive")
    with pytest.raises(CannotImport, match=r"custom_objects\.cloudpickle beside it is a pickle, and is not read"):
        source_of(folder)


@pytest.mark.parametrize("place", ["../other", "/etc"])
def test_a_path_out_of_the_folder_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "other").mkdir()
    folder = made(tmp_path / "model", f"flavors:\n  tensorflow:\n    saved_model_dir: {place}\n")
    with pytest.raises(CannotImport, match="lies outside its folder"):
        source_of(folder)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, keras_file: Path) -> None:
    folder = made(tmp_path / "model", _KERAS)
    (folder / "data" / "model.keras").symlink_to(keras_file)
    with pytest.raises(CannotImport, match="a link out of"):
        source_of(folder)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: &a [x, x]\nb: &b [*a, *a]\nflavors: {tensorflow: {data: *b}}\n", "it has an alias"),
        ("[" * 100_000, "no plain YAML"),
        ("flavors: [tensorflow]\n", "has no 'flavors'"),
        ("flavors: !!python/object/apply:os.system ['true']\n", "no plain YAML"),
        ("x" * (1 << 20 | 1), "expected at most 1,048,576"),
    ],
)
def test_hostile_yaml_is_refused(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(CannotImport, match=error):
        source_of(made(tmp_path / "model", text))


def test_several_models_of_a_run_are_listed(tmp_path: Path) -> None:
    for name in ("one", "two"):
        made(tmp_path / "artifacts" / name, _KERAS)
    with pytest.raises(CannotImport, match="holds the models one, two; give the folder of one"):
        source_of(tmp_path)
