"""Files that someone made to harm whoever imports them: each function writes one into a folder, and returns its path.

`marker` is a file that code in them would write.
"""

from __future__ import annotations

import base64
import json
import marshal
import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2

from tests.support.keras_files import make_classifier

#: The member of an archive that describes its model, and that which holds its weights.
_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"


class Makings(NamedTuple):
    """The folder to write into, an archive of Keras to begin with, and the marker."""

    folder: Path
    archive: Path
    marker: Path

    @classmethod
    def of(cls, folder: Path) -> Makings:
        return cls(folder, make_classifier(folder / "good.keras"), folder / "marker")


# --- archives of Keras ---


def _changed(given: Makings, change: Callable[[dict[str, Any]], Any], more: Mapping[str, bytes] | None = None) -> Path:
    """The archive with another configuration, or with other members."""
    path = given.folder / "changed.keras"
    with zipfile.ZipFile(given.archive) as good, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name in good.namelist():
            content = good.read(name)
            if name == _CONFIG:
                config = json.loads(content)
                content = json.dumps(change(config) or config).encode()
            if name not in (more or {}):
                made.writestr(name, content)
        for name, content in (more or {}).items():
            made.writestr(name, content)
    return path


def _same(_: dict[str, Any]) -> None: ...


def _layer(config: dict[str, Any]) -> dict[str, Any]:
    layer: dict[str, Any] = config["config"]["layers"][-1]
    return layer


def truncated(given: Makings) -> Path:
    path = given.folder / "truncated.keras"
    path.write_bytes(given.archive.read_bytes()[:-200])
    return path


def zip_bomb(given: Makings) -> Path:
    """3 GiB of zeros as weights, stored in 14 MiB."""
    path = given.folder / "bomb.keras"
    with (
        zipfile.ZipFile(given.archive) as good,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made,
    ):
        for name in good.namelist():
            if name != _WEIGHTS:
                made.writestr(name, good.read(name))
        with made.open(_WEIGHTS, "w", force_zip64=True) as member:
            for _ in range(48):
                member.write(bytes(64 << 20))
    return path


def path_out_of_the_archive(given: Makings) -> Path:
    return _changed(given, _same, {f"assets/../../../../../../../..{given.marker}": b"written"})


def link_in_the_archive(given: Makings) -> Path:
    path = _changed(given, _same)
    with zipfile.ZipFile(path, "a") as made:
        member = zipfile.ZipInfo("assets")
        member.external_attr = 0o120777 << 16
        made.writestr(member, "/etc")
    return path


def _writes_marker(given: Makings) -> str:
    """Bytecode that writes the marker, as Keras stores it."""
    code = compile(f"open({str(given.marker)!r}, 'w').write('run')", "<string>", "eval")
    return base64.b64encode(marshal.dumps(code)).decode()


def lambda_layer(given: Makings) -> Path:
    def change(config: dict[str, Any]) -> None:
        function = {"class_name": "__lambda__", "config": {"code": _writes_marker(given), "defaults": None}}
        layer = _layer(config)
        layer["class_name"], layer["config"] = "Lambda", {"name": "score", "function": function, "arguments": {}}

    return _changed(given, change)


def class_of_another_module(given: Makings) -> Path:
    def change(config: dict[str, Any]) -> None:
        _layer(config)["config"]["activation"] = {
            "module": "os",
            "class_name": "function",
            "config": "system",
            "registered_name": "system",
        }

    return _changed(given, change)


def unsafe_switch(given: Makings) -> Path:
    """A function of Keras that lets it run code, as a layer's activation."""

    def change(config: dict[str, Any]) -> None:
        _layer(config)["config"]["activation"] = {
            "module": "keras.config",
            "class_name": "function",
            "config": "enable_unsafe_deserialization",
            "registered_name": "enable_unsafe_deserialization",
        }

    return _changed(given, change)


def file_as_vocabulary(given: Makings) -> Path:
    def change(config: dict[str, Any]) -> None:
        layer = _layer(config)
        layer["class_name"], layer["config"] = "StringLookup", {"name": "score", "vocabulary": "/etc/passwd"}

    return _changed(given, change)


def million_layers(given: Makings) -> Path:
    """A chain of layers, as long as that, written piece by piece: Python needs 3 GB for it at once."""
    path = given.folder / "changed.keras"
    with zipfile.ZipFile(given.archive) as good, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name in good.namelist():
            if name != _CONFIG:
                made.writestr(name, good.read(name))
        config = json.loads(good.read(_CONFIG))
        head, tail = json.dumps(config).split('"layers": [', 1)
        layer = json.dumps(_layer(config))
        with made.open(_CONFIG, "w", force_zip64=True) as member:
            member.write(f'{head}"layers": ['.encode())
            for number in range(1000):
                chain = (layer.replace('"score"', f'"layer_{number}_{each}"') for each in range(1000))
                member.write("".join(f"{each}, " for each in chain).encode())
            member.write(tail.encode())
    return path


def deep_configuration(given: Makings) -> Path:
    return _changed(given, _same, {_CONFIG: b'{"config":' * 100_000 + b"1" + b"}" * 100_000})


def huge_layer(given: Makings) -> Path:
    def change(config: dict[str, Any]) -> None:
        _layer(config)["config"]["units"] = 10**10

    return _changed(given, change)


def huge_input(given: Makings) -> Path:
    def change(config: dict[str, Any]) -> None:
        config["config"]["layers"][0]["config"]["batch_shape"] = [None, 2**40]

    return _changed(given, change)


def weights_of_another_model(given: Makings) -> Path:
    def change(config: dict[str, Any]) -> None:
        _layer(config)["config"]["units"] = 7

    return _changed(given, change)


def weights_that_are_not_numbers(given: Makings) -> Path:
    """All answers are NaN, so that nothing shows whether two of them are of one model."""
    with zipfile.ZipFile(given.archive) as good:
        weights = given.folder / _WEIGHTS
        weights.write_bytes(good.read(_WEIGHTS))
    with h5py.File(weights, "r+") as file:
        file.visititems(lambda _, each: each.write_direct(np.full_like(each, np.nan)) if _is_data(each) else None)
    content = weights.read_bytes()
    weights.unlink()
    return _changed(given, _same, {_WEIGHTS: content})


def _is_data(each: Any) -> bool:
    return isinstance(each, h5py.Dataset) and each.dtype.kind == "f"


# --- HDF5 ---


def _hdf5(given: Makings, change: Callable[[h5py.File], None]) -> Path:
    path = make_classifier(given.folder / "changed.h5")
    with h5py.File(path, "r+") as file:
        change(file)
    return path


def truncated_hdf5(given: Makings) -> Path:
    path = make_classifier(given.folder / "truncated.h5")
    path.write_bytes(path.read_bytes()[:-3000])
    return path


def link_out_of_hdf5(given: Makings) -> Path:
    """Weights that lie in another file."""

    def change(file: h5py.File) -> None:
        secret = given.folder / "secret.h5"
        with h5py.File(secret, "w") as other:
            other["kernel"] = np.full((2, 3), 42.0, np.float32)
        group = file["model_weights/score/score"] if "score" in file["model_weights/score"] else file["model_weights"]
        name = next(iter(group))
        del group[name]
        group[name] = h5py.ExternalLink(str(secret), "kernel")

    return _hdf5(given, change)


def bomb_in_hdf5(given: Makings) -> Path:
    """A weight of 1 TiB that takes no space."""
    return _hdf5(given, lambda file: file.create_dataset("bomb", (2**38,), "f4", chunks=(2**20,), compression="gzip"))


# --- pickles ---


class _Runs:
    """An object whose pickle writes the marker."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, (f"open({str(self._marker)!r}, 'w').write('run')",))


def a_pickle(given: Makings) -> Path:
    path = given.folder / "model.pkl"
    path.write_bytes(pickle.dumps(_Runs(given.marker)))
    return path


def pickle_as_archive(given: Makings) -> Path:
    return a_pickle(given).rename(given.folder / "model.keras")


def pickle_as_hdf5(given: Makings) -> Path:
    return a_pickle(given).rename(given.folder / "model.h5")


def pickle_in_mlflow(given: Makings) -> Path:
    folder = given.folder / "model"
    folder.mkdir()
    a_pickle(given).rename(folder / "model.pkl")
    (folder / "MLmodel").write_text("flavors:\n  python_function:\n    loader_module: mlflow.sklearn\n")
    return folder


# --- graphs ---


def _graph(given: Makings, graph: Any) -> Path:
    path = given.folder / "graph.pb"
    path.write_bytes(graph.SerializeToString())
    return path


def _traced(call: Callable[[Any], Any], dtype: Any = tf.float32) -> Any:
    with tf.Graph().as_default() as graph:
        tf.identity(call(tf.compat.v1.placeholder(dtype, [None], "x")), "y")
    return graph.as_graph_def()


def truncated_graph(given: Makings) -> Path:
    path = _graph(given, _traced(lambda x: x * 2.0))
    path.write_bytes(path.read_bytes()[:-30])
    return path


def graph_that_reads_files(given: Makings) -> Path:
    return _graph(given, _traced(lambda x: tf.io.read_file("/etc/passwd") + x, tf.string))


def graph_that_writes_files(given: Makings) -> Path:
    def call(x: Any) -> Any:
        with tf.control_dependencies([tf.io.write_file(str(given.marker), "written")]):
            return tf.identity(x)

    return _graph(given, _traced(call))


def million_nodes(given: Makings) -> Path:
    graph = graph_pb2.GraphDef()
    one = node_def_pb2.NodeDef(op="Identity", attr={"T": tf.compat.v1.AttrValue(type=1)})
    first = graph.node.add(op="Placeholder", name="n0")
    first.attr["dtype"].type = 1
    for number in range(1, 1_000_000):
        node = graph.node.add()
        node.CopyFrom(one)
        node.name = f"n{number}"
        node.input.append(f"n{number - 1}")
    return _graph(given, graph)


def huge_constant(given: Makings) -> Path:
    """One value that is said to fill 2^40 places."""
    graph = _traced(lambda x: x + tf.constant(1.0, name="huge"))
    constant = next(node for node in graph.node if node.name == "huge")
    constant.attr["value"].tensor.tensor_shape.dim.add(size=2**40)
    return _graph(given, graph)


def endless_loop(given: Makings) -> Path:
    def call(x: Any) -> Any:
        return tf.while_loop(lambda _: True, lambda value: [value + 1.0], [x])[0]

    return _graph(given, _traced(call))


def circle(given: Makings) -> Path:
    graph = _traced(lambda x: x * 2.0)
    next(node for node in graph.node if node.op == "Mul").input[0] = "y"
    return _graph(given, graph)


# --- folders ---


def yaml_bomb(given: Makings) -> Path:
    folder = given.folder / "model"
    folder.mkdir()
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    (folder / "MLmodel").write_text("\n".join([*lines, "flavors: *a11"]))
    return folder


def path_out_of_mlflow(given: Makings) -> Path:
    folder = given.folder / "model"
    folder.mkdir()
    (folder / "MLmodel").write_text("flavors:\n  tensorflow:\n    saved_model_dir: ../../../../etc\n    code: null\n")
    return folder


def python_in_a_savedmodel(given: Makings) -> Path:
    folder = given.folder / "model"
    module = tf.Module()
    module.f = tf.function(lambda x: tf.numpy_function(lambda y: y, [x], tf.float32), [tf.TensorSpec([None])])
    tf.saved_model.save(module, str(folder), signatures={})
    return folder


#: By what makes it, words of the sentence that tells why it is not imported.
HOSTILE: Mapping[Callable[[Makings], Path], str] = {
    truncated: "archive|zip|cut",
    zip_bomb: "bytes|larger|memory",
    path_out_of_the_archive: "path|outside|name",
    link_in_the_archive: "link",
    lambda_layer: "(?i)lambda.*--trust",
    class_of_another_module: "os",
    unsafe_switch: "enable_unsafe_deserialization",
    file_as_vocabulary: "vocabulary|file",
    million_layers: "layers|bomb|bytes",
    deep_configuration: "deep|depth|nest|JSON|config",
    huge_layer: "units|numbers|large|weights",
    huge_input: "numbers|large|shape|sizes",
    weights_of_another_model: "<Dense name=.*shape",
    weights_that_are_not_numbers: "all that its source answers is NaN",
    truncated_hdf5: "cut|truncated|HDF5",
    link_out_of_hdf5: "ExternalLink",
    bomb_in_hdf5: "bytes|memory|large|compress",
    a_pickle: "pickle",
    pickle_as_archive: "pickle|archive",
    pickle_as_hdf5: "pickle|HDF5",
    pickle_in_mlflow: "python_function|pickle",
    truncated_graph: "cut|parse|graph",
    graph_that_reads_files: "ReadFile",
    graph_that_writes_files: "WriteFile",
    million_nodes: "nodes|bytes",
    huge_constant: "huge|memory|values|large",
    endless_loop: "--limit-s",
    circle: "does not say which of its tensors are outputs|circle",
    yaml_bomb: "alias|anchor|MLmodel|YAML",
    path_out_of_mlflow: "outside|folder|path",
    python_in_a_savedmodel: "PyFunc|EagerPyFunc|Python",
}
