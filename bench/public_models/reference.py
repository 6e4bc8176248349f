"""The right answers: the source itself, called by its own library, row by row. Ferry has no part in it.

python -m bench.public_models.reference FOLDER NAME... runs in the makers' environment, and says "done NAME" after each,
or "failed NAME: why". FOLDER holds the sources; beside them it writes NAME.npz and NAME.json.
"""

# ruff: noqa: PLC0415 - each kind needs another library
from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.public_models import table
from bench.public_models.table import Model, Values

Array = np.ndarray[Any, Any]
Rows = dict[str, Array]

#: As many rows as callers.
ROWS = 32

#: Rows of a direct call that the served rate is compared with.
DIRECT_ROWS = 16


class Source:
    """A source as its library loads it.

    inputs: name -> (sizes with -1 where they are free, the batch first; dtype).
    call: all inputs, to all outputs by name.
    """

    def __init__(self, inputs: Mapping[str, tuple[Sequence[int], Any]], call: Callable[[Rows], Mapping[str, Any]]):
        self.inputs = {name: ([*sizes], np.dtype(dtype)) for name, (sizes, dtype) in inputs.items()}
        self.call = call

    def takes_many_rows(self) -> bool:
        return all(sizes and sizes[0] in {-1, None} for sizes, _ in self.inputs.values())


def _sizes(shape: Any) -> list[int]:
    return [-1 if size is None else int(size) for size in shape]


def saved_model(path: Path) -> Source:
    """By its signature; if there is none, by `__call__`, as TF-Hub has it."""
    import tensorflow as tf

    if path.name in table.OF_TENSORFLOW_TEXT:
        import tensorflow_text  # noqa: F401 - registers operations

    try:
        loaded = tf.saved_model.load(str(path))
    except (ValueError, AttributeError, KeyError, TypeError):
        return _graph_of_saved_model(path)
    if loaded.signatures:
        function = loaded.signatures["serving_default"]
        specs = function.structured_input_signature[1]
    else:
        function = loaded.__call__
        specs = {spec.name: spec for spec in function.concrete_functions[0].structured_input_signature[0]}
        function = _named_output(function)
    inputs = {name: (_sizes(spec.shape), spec.dtype.as_numpy_dtype) for name, spec in specs.items()}
    return Source(inputs, lambda rows: _plain(function(**{name: tf.constant(x) for name, x in rows.items()})))


def _named_output(function: Any) -> Callable[..., dict[str, Any]]:
    return lambda **inputs: {"output_0": function(*inputs.values())}


def _plain(outputs: Any) -> dict[str, Array]:
    return {name: np.asarray(value.numpy() if hasattr(value, "numpy") else value) for name, value in outputs.items()}


def _graph_of_saved_model(path: Path) -> Source:
    """For Keras 2's with an optimizer, whose objects this TensorFlow cannot restore: the graph in a session."""
    import tensorflow as tf

    v1 = tf.compat.v1
    session = v1.Session(graph=tf.Graph())
    with session.graph.as_default():
        meta = v1.saved_model.loader.load(session, ["serve"], str(path))
    signature = meta.signature_def["serving_default"]
    inputs = {
        name: ([dim.size for dim in each.tensor_shape.dim], tf.as_dtype(each.dtype).as_numpy_dtype)
        for name, each in signature.inputs.items()
    }
    fetches = {name: each.name for name, each in signature.outputs.items()}
    feeds = {name: each.name for name, each in signature.inputs.items()}
    return Source(inputs, lambda rows: session.run(fetches, {feeds[name]: x for name, x in rows.items()}))


def keras_file(path: Path) -> Source:
    """By the Keras that wrote it."""
    import tensorflow as tf

    if path.suffix == ".keras":
        import keras
    else:
        import h5py

        with h5py.File(path) as file:
            version = file.attrs.get("keras_version", "2")
        version = version.decode() if isinstance(version, bytes) else version
        if version.startswith("3"):
            import keras
        else:
            import tf_keras as keras
    return _keras_model(keras.models.load_model(path, compile=False), tf)


def _keras_model(model: Any, tf: Any) -> Source:
    names = [each.name.split(":")[0] for each in model.inputs]
    inputs = {
        name: (_sizes(each.shape), tf.as_dtype(each.dtype).as_numpy_dtype)
        for name, each in zip(names, model.inputs, strict=True)
    }
    outputs = getattr(model, "output_names", ["output"])
    function = tf.function(lambda values: model(values if len(values) > 1 else values[0], training=False))

    def call(rows: Rows) -> Mapping[str, Any]:
        made = function([tf.constant(rows[name]) for name in names])
        if isinstance(made, dict):
            return _plain(made)
        flat = made if isinstance(made, list | tuple) else [made]
        return _plain(dict(zip(_unique(outputs), flat, strict=True)))

    return Source(inputs, call)


def _unique(names: Sequence[str]) -> list[str]:
    return [f"{name}_{names[:n].count(name)}" if name in names[:n] else name for n, name in enumerate(names)]


def graph(path: Path, model: Model) -> Source:
    """A frozen graph, or a checkpoint with its meta graph, in a session."""
    import tensorflow as tf

    v1 = tf.compat.v1
    session = v1.Session(graph=tf.Graph())
    with session.graph.as_default():
        if path.is_dir():
            prefix = str(next(path.glob("*.meta"), path / ".meta")).removesuffix(".meta")
            v1.train.import_meta_graph(_without_shapes(f"{prefix}.meta"), clear_devices=True).restore(session, prefix)
        else:
            graph = v1.GraphDef()
            graph.ParseFromString(path.read_bytes())
            tf.import_graph_def(graph, name="")
    fixed = {f"{name}:0": value for name, value in model.feeds.items() if value is not None}
    names = [name for name, value in model.feeds.items() if value is None]
    inputs = {}
    for name in names:
        tensor = session.graph.get_tensor_by_name(f"{name}:0")
        inputs[name] = (_sizes(tensor.shape), tensor.dtype.as_numpy_dtype)
    fetches = {name: f"{name}:0" for name in model.fetches}
    return Source(inputs, lambda rows: session.run(fetches, {**fixed, **{f"{name}:0": rows[name] for name in names}}))


def _without_shapes(file: str) -> Any:
    """The meta graph without the shapes that an old TensorFlow noted, with which a new one does not agree."""
    import tensorflow as tf

    meta = tf.compat.v1.MetaGraphDef()
    meta.ParseFromString(Path(file).read_bytes())
    for node in meta.graph_def.node:
        node.attr.pop("_output_shapes", None)
    return meta


def tflite(path: Path) -> Source:
    """By TensorFlow's own interpreter; each row from a fresh state."""
    import tensorflow as tf

    interpreter = tf.lite.Interpreter(str(path))
    signatures = interpreter.get_signature_list()
    interpreter.allocate_tensors()
    details = {each["index"]: each for each in (*interpreter.get_input_details(), *interpreter.get_output_details())}
    ins, outs = _lite_names(interpreter, bool(signatures))
    inputs = {name: (details[n]["shape_signature"].tolist(), details[n]["dtype"]) for name, n in ins.items()}

    def call(rows: Rows) -> Mapping[str, Any]:
        for name, index in ins.items():
            interpreter.resize_tensor_input(index, rows[name].shape)
        interpreter.allocate_tensors()
        interpreter.reset_all_variables()
        for name, index in ins.items():
            interpreter.set_tensor(index, rows[name])
        interpreter.invoke()
        return {name: interpreter.get_tensor(index) for name, index in outs.items()}

    return Source(inputs, call)


def _lite_names(interpreter: Any, signed: bool) -> tuple[dict[str, int], dict[str, int]]:
    if not signed:
        return (
            {each["name"]: each["index"] for each in interpreter.get_input_details()},
            {each["name"]: each["index"] for each in interpreter.get_output_details()},
        )
    ((_, signature),) = interpreter._get_full_signature_list().items()
    return dict(signature["inputs"]), dict(signature["outputs"])


def mlflow(path: Path) -> Source:
    import mlflow.tensorflow
    import tensorflow as tf

    return _keras_model(mlflow.tensorflow.load_model(str(path)), tf)


def snapshot(path: Path) -> Source:
    import tensorflow as tf
    import transformers

    (name,) = json.loads((path / "config.json").read_text())["architectures"]
    loaded = getattr(transformers, name if name.startswith("TF") else f"TF{name}").from_pretrained(path)
    inputs = {each: ([-1, -1], np.int32) for each in loaded.input_signature}
    function = tf.function(lambda values: dict(loaded(values, training=False)))
    return Source(inputs, lambda rows: _plain(function({name: tf.constant(x) for name, x in rows.items()})))


READERS: Mapping[str, Callable[[Path], Source]] = {
    table.SAVED_MODEL: saved_model,
    table.HUB: saved_model,
    table.KERAS: keras_file,
    table.HDF5: keras_file,
    table.TFLITE: tflite,
    table.MLFLOW: mlflow,
    table.SNAPSHOT: snapshot,
}


def values(source: Source, model: Model) -> Rows:
    """ROWS rows that differ, as the model takes them."""
    random = np.random.default_rng(7)
    made = {}
    for name, (sizes, dtype) in source.inputs.items():
        wanted = model.values.get(name) or model.values.get("*") or Values()
        open_sizes = [size if size > 0 else 8 for size in sizes[1:]]
        inner = open_sizes if wanted.sizes is None else [*wanted.sizes]
        made[name] = _random(random, (ROWS, *inner), dtype, wanted)
    return made


def _random(random: np.random.Generator, shape: tuple[int, ...], dtype: Any, wanted: Values) -> Array:
    if dtype.kind in "OSU":
        texts = wanted.texts or table.TEXTS
        return np.array([texts[n % len(texts)].encode() for n in range(ROWS)], object).reshape(shape)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    if wanted.high or dtype.kind in "iu":
        high = wanted.high or min(100, np.iinfo(dtype).max)
        return random.integers(0, high, shape).astype(dtype)
    return random.normal(size=shape).astype(dtype)


def request(rows: Rows, n: int, model: Model) -> Rows:
    """What caller `n` sends."""
    return {name: x[n] if model.whole else x[n : n + 1] for name, x in rows.items()}


def answer(source: Source, rows: Rows, model: Model) -> Rows:
    """Each caller's answer, of a call with its row alone; one after another along the first axis."""
    alone = [source.call(request(rows, n, model)) for n in range(ROWS)]
    join = np.stack if model.whole else np.concatenate
    return {name: join([np.asarray(each[name]) for each in alone]) for name in alone[0]}


def direct_rate(source: Source, rows: Rows, model: Model) -> tuple[float, int]:
    """Rows a second of direct calls, and the rows of a call: DIRECT_ROWS where the source takes them."""
    count = DIRECT_ROWS if source.takes_many_rows() and not model.whole else 1
    some = request(rows, 0, model) if model.whole else {name: x[:count] for name, x in rows.items()}
    try:
        source.call(some)
    except Exception:
        count, some = 1, {name: x[:1] for name, x in rows.items()}
        source.call(some)
    calls, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < 1.5:
        source.call(some)
        calls += 1
    return calls * count / (time.perf_counter() - begun), count


def write(folder: Path, name: str) -> None:
    model = table.MODELS[name]
    path = folder / f"{name}{model.suffix}"
    source = READERS[model.kind](path) if model.kind in READERS else graph(path, model)
    rows = values(source, model)
    outputs = answer(source, rows, model)
    arrays = {f"in {name}": x for name, x in rows.items()} | {f"out {name}": x for name, x in outputs.items()}
    as_bytes = {name: x.astype("S") if x.dtype.kind == "O" else x for name, x in arrays.items()}
    np.savez(folder / f"{name}.npz", **as_bytes)  # type: ignore[arg-type]  # numpy's own stub takes a flag for an array
    rate, count = direct_rate(source, rows, model)
    (folder / f"{name}.json").write_text(json.dumps({"rate": rate, "rows": count}))


def main() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    folder, *names = sys.argv[1:]
    for name in names:
        try:
            write(Path(folder), name)
        except Exception as error:
            print(f"failed {name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)
        else:
            print(f"done {name}", flush=True)


if __name__ == "__main__":
    main()
