"""Files of Keras that would run code, read other files, or take all memory: refused with a reason, before Keras."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from app.importing.formats import keras_archive, keras_hdf5, refused
from app.importing.order import CannotImport, ImportOrder
from tests.importing.formats import keras_zoo as zoo

Config = dict[str, Any]


def order(path: Path, *, trust: bool = False, memory_bytes: int = 1 << 30) -> ImportOrder:
    return ImportOrder(str(path), "", trust=trust, memory_bytes=memory_bytes)


def why_refused(path: Path, **options: Any) -> str:
    reader = keras_archive.read if path.suffix == ".keras" else keras_hdf5.read
    with pytest.raises(CannotImport) as caught:
        reader(path, order(path, **options))
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zoo.save(zoo.made(zoo.two_in_two_out, "keras"), tmp_path_factory.mktemp("archive") / "model.keras")


@pytest.fixture(scope="module")
def hdf5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zoo.save(zoo.made(zoo.images, "tf_keras"), tmp_path_factory.mktemp("hdf5") / "model.h5")


def members_of(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def written(path: Path, members: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as opened:
        for name, content in members.items():
            opened.writestr(name, content)
    return path


def with_config(archive: Path, path: Path, change: Callable[[Config], object]) -> Path:
    """The archive with its configuration changed."""
    members = members_of(archive)
    config = json.loads(members["config.json"])
    change(config)
    return written(path, members | {"config.json": json.dumps(config).encode()})


def dense_of(config: Config) -> Config:
    return next(layer for layer in config["config"]["layers"] if layer["class_name"] == "Dense")


# --- the archive ---


@pytest.mark.parametrize("name", ["../../evil.txt", "/etc/evil", "assets/../../evil", "C:/evil", "..\\evil"])
def test_a_member_whose_path_leads_out(archive: Path, tmp_path: Path, name: str) -> None:
    path = written(tmp_path / "model.keras", members_of(archive) | {name: b"x"})
    assert "leads out of it" in why_refused(path)


def test_a_member_that_is_a_link(archive: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "model.keras", members_of(archive))
    link = zipfile.ZipInfo("assets/link")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(path, "a") as opened:
        opened.writestr(link, "/etc/passwd")
    assert "which is a link" in why_refused(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_is_there_twice(archive: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "model.keras", members_of(archive))
    with zipfile.ZipFile(path, "a") as opened:
        opened.writestr("config.json", "{}")
    assert "has 'config.json' twice" in why_refused(path)


def test_a_bomb_of_zeros(archive: Path, tmp_path: Path) -> None:
    members = members_of(archive) | {"model.weights.h5": bytes(64 << 20)}
    path = written(tmp_path / "model.keras", members, zipfile.ZIP_DEFLATED)
    assert "67,108,864 bytes" in why_refused(path)


def test_more_bytes_than_memory(archive: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "model.keras", members_of(archive) | {"assets/a": bytes(1 << 20)})
    assert "of memory are allowed" in why_refused(path, memory_bytes=1 << 20)


@pytest.mark.parametrize("part", [0.2, 0.9, 0.999])
def test_a_truncated_archive(archive: Path, tmp_path: Path, part: float) -> None:
    content = archive.read_bytes()
    path = tmp_path / "model.keras"
    path.write_bytes(content[: int(len(content) * part)])
    assert "broken or cut off" in why_refused(path)


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    path.write_text("a page")
    assert "is no archive of Keras (a zip file): it has 6 bytes and begins with b'a page'" in why_refused(path)


def test_an_archive_without_weights(archive: Path, tmp_path: Path) -> None:
    members = members_of(archive)
    del members["model.weights.h5"]
    assert "has no model.weights.h5" in why_refused(written(tmp_path / "model.keras", members))


def test_weights_of_another_model(archive: Path, tmp_path: Path) -> None:
    other = zoo.save(zoo.made(zoo.images, "keras"), tmp_path / "other.keras")
    weights = {"model.weights.h5": members_of(other)["model.weights.h5"]}
    assert "cannot read it" in why_refused(written(tmp_path / "model.keras", members_of(archive) | weights))


# --- its configuration ---


def test_a_million_layers(archive: Path, tmp_path: Path) -> None:
    layer = {"module": "keras.layers", "class_name": "ReLU", "config": {}}
    path = with_config(
        archive, tmp_path / "model.keras", lambda config: config["config"]["layers"].extend([layer] * 10**6)
    )
    assert "at most" in why_refused(path)


def test_layers_above_the_most(archive: Path, tmp_path: Path) -> None:
    path = with_config(
        archive, tmp_path / "model.keras", lambda config: config["config"]["layers"].extend([{}] * 30_000)
    )
    assert "it has 30,0" in why_refused(path)


def test_a_configuration_that_is_nested_deeply(archive: Path, tmp_path: Path) -> None:
    deep = b'{"class_name": "Functional", "config": ' + b'{"a": ' * 100_000 + b"{}" + b"}" * 100_001
    path = written(tmp_path / "model.keras", members_of(archive) | {"config.json": deep})
    assert "nested" in why_refused(path)


def test_units_that_no_weights_have(archive: Path, tmp_path: Path) -> None:
    path = with_config(archive, tmp_path / "model.keras", lambda config: dense_of(config)["config"].update(units=10**9))
    assert "has units 1,000,000,000, but the weights in the file have" in why_refused(path)


def test_a_row_that_is_too_large(archive: Path, tmp_path: Path) -> None:
    def grow(config: Config) -> None:
        config["config"]["layers"][0]["config"]["batch_shape"] = [None, 10**6, 10**6]

    path = with_config(archive, tmp_path / "model.keras", grow)
    assert "has batch_shape [None, 1000000, 1000000]" in why_refused(path)


def test_a_lambda_that_keras_2_wrote_without_its_code(archive: Path, tmp_path: Path) -> None:
    path = with_config(
        archive, tmp_path / "model.keras", lambda config: dense_of(config)["config"].update(activation="<lambda>")
    )
    assert "has a lambda as activation, whose code is not in the file; where its code is" in why_refused(path)


def test_a_lambda_layer(tmp_path: Path) -> None:
    def lambda_layer(keras: Any) -> Any:
        return keras.Sequential([keras.Input((2,)), keras.layers.Lambda(lambda x: x * 2, name="twice")])

    for library, name in (("keras", "model.keras"), ("tf_keras", "model.keras"), ("tf_keras", "model.h5")):
        path = zoo.save(zoo.made(lambda_layer, library), tmp_path / name)
        assert "layer 'twice' is a Lambda, which holds Python code; --trust lets it run" in why_refused(path)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"module": "os", "class_name": "system", "config": {}}, "is a 'os.system', which is no class of Keras"),
        ({"module": "keras.utils", "class_name": "get_file", "config": {}}, "'keras.utils.get_file'"),
        ({"module": "keras.saving", "class_name": "load_model", "config": {}}, "'keras.saving.load_model'"),
        ({"module": "keras.callbacks", "class_name": "CSVLogger", "config": {}}, "'keras.callbacks.CSVLogger'"),
        ({"module": "keras.src.saving.saving_lib", "class_name": "load_model", "config": {}}, "load_model'"),
        ({"module": "keras.layers", "class_name": "TFSMLayer", "config": {"filepath": "/etc"}}, "TFSMLayer"),
        ({"module": "keras.layers", "class_name": "TorchModuleWrapper", "config": {}}, "a pickle of PyTorch"),
        ({"module": ["os"], "class_name": "Dense", "config": {}}, "names no module"),
        ({"module": "keras_cv.layers", "class_name": "Mine", "config": {}}, "pip install keras-cv"),
        ({"class_name": "Mine", "config": {}, "module": "mine"}, "--trust imports that module"),
    ],
)  # fmt: skip
def test_a_class_that_is_none_of_keras(archive: Path, tmp_path: Path, changed: Config, said: str) -> None:
    path = with_config(archive, tmp_path / "model.keras", lambda config: config["config"]["layers"].append(changed))
    assert said in why_refused(path)


@pytest.mark.parametrize(
    "function",
    [
        {"module": "builtins", "class_name": "function", "config": "eval", "registered_name": "eval"},
        {"module": "keras.utils", "class_name": "function", "config": "get_file", "registered_name": "get_file"},
        {"module": "keras.config", "class_name": "function", "config": "enable_unsafe_deserialization"},
        {"module": "os", "class_name": "function", "config": "system", "registered_name": "system"},
        {"class_name": "__lambda__", "config": {"value": "4wEA"}},
    ],
)
def test_a_function_that_is_no_activation(archive: Path, tmp_path: Path, function: Config) -> None:
    path = with_config(
        archive, tmp_path / "model.keras", lambda config: dense_of(config)["config"].update(activation=function)
    )
    text = why_refused(path)
    assert "no class of Keras" in text or "holds Python code" in text


def test_a_vocabulary_in_another_file(tmp_path: Path) -> None:
    path = zoo.save(zoo.made(zoo.columns, "keras"), tmp_path / "columns.keras")

    def point_outside(config: Config) -> None:
        lookup = next(layer for layer in config["config"]["layers"] if layer["class_name"] == "StringLookup")
        lookup["config"]["vocabulary"] = "/etc/passwd"

    changed = with_config(path, tmp_path / "model.keras", point_outside)
    assert "reads the file '/etc/passwd' (vocabulary), which is not in the source" in why_refused(changed)


@pytest.mark.parametrize(
    "function", ["io.read_file", "raw_ops.ReadFile", "py_function", "compat.v1.py_func", "load_op_library"]
)
def test_a_layer_that_calls_what_reads_files_or_runs_python(tmp_path: Path, function: str) -> None:
    path = zoo.save(zoo.made(zoo.tensorflow_functions, "tf_keras"), tmp_path / "functions.keras")

    def call_it(config: Config) -> None:
        layer = next(layer for layer in config["config"]["layers"] if layer["class_name"] == "TFOpLambda")
        layer["config"]["function"] = function

    assert f"calls tf.{function}; --trust" in why_refused(with_config(path, tmp_path / "model.keras", call_it))


# --- HDF5 ---


def test_a_link_to_another_file(hdf5: Path, tmp_path: Path) -> None:
    for name, link in (("outside", h5py.ExternalLink("/etc/passwd", "/")), ("soft", h5py.SoftLink("/model_weights"))):
        path = tmp_path / f"{name}.h5"
        path.write_bytes(hdf5.read_bytes())
        with h5py.File(path, "r+") as file:
            file[name] = link
        assert f"/{name} is a {type(link).__name__}" in why_refused(path)


def test_data_in_another_file(hdf5: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.h5"
    path.write_bytes(hdf5.read_bytes())
    with h5py.File(path, "r+") as file:
        file.create_dataset("outside", (4,), "u1", external=[("/etc/passwd", 0, 4)])
    assert "/outside reads another file" in why_refused(path)


def test_data_that_is_declared_and_not_there(hdf5: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.h5"
    path.write_bytes(hdf5.read_bytes())
    with h5py.File(path, "r+") as file:
        file.create_dataset("bomb", (1 << 38,), "f4", chunks=(1 << 20,), compression="gzip")
    assert "/bomb declares 1,099,511,627,776 bytes of which 0 are stored" in why_refused(path)


def test_a_truncated_hdf5_file(hdf5: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.h5"
    path.write_bytes(hdf5.read_bytes()[:-2000])
    assert "broken or cut off" in why_refused(path)


def test_a_circle_of_links_ends(hdf5: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.h5"
    path.write_bytes(hdf5.read_bytes())
    with h5py.File(path, "r+") as file:
        file["model_weights/again"] = file["/"]
    assert keras_hdf5.read(path, order(path)).endpoints


def test_a_file_of_weights_alone(hdf5: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.h5"
    path.write_bytes(hdf5.read_bytes())
    with h5py.File(path, "r+") as file:
        del file.attrs["model_config"]
    assert "model.load_weights('model.h5') and model.save('model.keras')" in why_refused(path)
    with pytest.raises(CannotImport, match="holds weights without their model"):
        refused.read_weights(path, order(path))


def test_a_configuration_of_hdf5_that_names_other_classes(hdf5: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.h5"
    path.write_bytes(hdf5.read_bytes())
    with h5py.File(path, "r+") as file:
        config = json.loads(file.attrs["model_config"])
        config["config"]["layers"].append({"class_name": "Mine", "config": {"name": "mine"}})
        file.attrs["model_config"] = json.dumps(config)
    assert "layer 'mine' is a 'Mine', which is no class of Keras" in why_refused(path)


# --- pickles ---


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_a_pickle_of_any_name_is_never_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(pickle.dumps(np.arange(3)))
    assert "is a pickle, which runs code when it is read" in why_refused(path)
    with pytest.raises(CannotImport, match="is a pickle"):
        refused.read_pickle(path, order(path))
