"""Models whose signatures, outputs or files have an unusual form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef, TensorInfo

from tests.awkward.awkward_model import (
    COLUMN,
    Asked,
    AwkwardModel,
    drawn,
    floats,
    ints,
    model,
    of,
    save,
    texts,
    variable,
)

_ROWS = [{"x": drawn(rows, 3, seed=rows)} for rows in (1, 2, 3, 5, 1)]


def a_total(path: Path) -> None:
    """One of several outputs is a scalar over the batch."""
    save(path, lambda x: {"each": x + 1.0, "total": tf.reduce_sum(x)}, of("x", None))


def a_hidden_total(path: Path) -> None:
    """The total is of unknown rank in the signature: only a call shows it."""

    def call(x: Any) -> Any:
        return {"each": x + 1.0, "total": _unknown(tf.reduce_sum(x))}

    save(path, call, of("x", None))


def _unknown(tensor: Any) -> Any:
    return tf.compat.v1.placeholder_with_default(tensor, None)


def a_constant_table(path: Path) -> None:
    """One output has always three rows, whatever came: in a batch of three it looks like everyone's."""
    save(path, lambda x: {"each": x * 2.0, "table": _unknown(tf.constant([1.0, 2.0, 3.0]))}, of("x", None))


def twice_the_rows(path: Path) -> None:
    """Two output rows for each input row."""
    save(path, lambda x: {"y": tf.concat([x, -x], 0)}, of("x", None))


def any_rank(path: Path) -> None:
    """An input of unknown rank."""
    save(path, lambda x: {"y": x + 1.0}, tf.TensorSpec(None, tf.float32, name="x"))


def scalar_beside_rows(path: Path) -> None:
    """A temperature for the whole request: requests of other temperatures do not share calls."""
    save(path, lambda x, scale: {"y": x * scale}, of("x", None), of("scale"))


def no_batch_dimension(path: Path) -> None:
    """Nothing to batch: a scalar and a list of fixed size."""
    save(path, lambda a, b: {"sum": a + tf.reduce_sum(b), "b": b}, of("a"), of("b", 2))


def no_inputs(path: Path) -> None:
    """A signature without inputs."""
    save(path, lambda: {"seven": tf.constant(7)})


def fixed_batch(path: Path) -> None:
    """A batch of two, no more and no less."""
    save(path, lambda x: {"y": tf.reduce_sum(x, 1)}, of("x", 2, 3))


def batch_in_the_middle(path: Path) -> None:
    """Time first, batch second: the first dimension is free, yet no batch."""
    save(path, lambda x: {"y": tf.cumsum(x, 0)}, of("x", None, None))


def identity(path: Path) -> None:
    """Input and output are one tensor."""
    save(path, lambda x: {"y": x}, of("x", None, 3))


def views_of_the_input(path: Path) -> None:
    """Outputs that may share memory with the input and with each other."""

    def call(x: Any) -> Any:
        flat = tf.reshape(x, [-1, 3])
        return {"a": flat, "b": flat[:, :2], "c": tf.squeeze(x[:, tf.newaxis], 1), "d": flat}

    save(path, call, of("x", None, 3))


def huge_constants(path: Path) -> None:
    """A constant of 24 MB in the graph itself."""
    table = np.random.default_rng(1).normal(size=(2_000_000, 3)).astype(np.float32)
    save(path, lambda at: {"row": tf.gather(tf.constant(table), at)}, of("at", None, dtype=tf.int32))


def sparse_inside(path: Path) -> None:
    """Sparse tensors between dense ones."""
    module = tf.Module()
    module.kernel = variable(3, 2)

    def call(x: Any) -> Any:
        sparse = tf.sparse.from_dense(x)
        return {"y": tf.sparse.sparse_dense_matmul(sparse, module.kernel), "filled": tf.sparse.to_dense(sparse)}

    save(path, call, of("x", None, 3), module=module)


def many_signatures(path: Path) -> None:
    """No serving_default; signatures of other forms beside each other, one of which is not batchable."""
    module = tf.Module()
    module.one = tf.function(lambda x: {"y": x + 1.0}, input_signature=[of("x", None)])
    module.two = tf.function(lambda x, y: {"z": x + y}, input_signature=[of("x", None, 3), of("y", None, 3)])
    module.sum = tf.function(lambda x: {"sum": tf.reduce_sum(x)}, input_signature=[of("x", None)])
    tf.saved_model.save(module, str(path), signatures={"one": module.one, "two": module.two, "sum": module.sum})


def tf1_with_tables(path: Path) -> None:
    """A TensorFlow 1 export: a session's graph, tables that an initializer fills, names that no Python name can be."""
    tf1 = tf.compat.v1
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.string, [None], name="x")
        keys, values = tf.constant(["a", "b"]), tf.constant([10, 20], tf.int64)
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1)
        weight = tf1.get_variable("weight", initializer=3.0)
        looked_up = table.lookup(x)
        outputs = {"looked/up:0": looked_up, "weighted output": tf.cast(looked_up, tf.float32) * weight}
        session.run([tf1.global_variables_initializer(), tf1.tables_initializer()])
        signature = SignatureDef(
            inputs={"images/x\u00fc": _info(x)},
            outputs={name: _info(tensor) for name, tensor in outputs.items()},
            method_name="tensorflow/serving/predict",
        )
        builder = tf1.saved_model.Builder(str(path))
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {"serving_default": signature},
            main_op=tf1.tables_initializer(),
            strip_default_attrs=True,
        )
        builder.save()


def _info(tensor: Any) -> Any:
    return TensorInfo(name=tensor.name, dtype=tensor.dtype.as_datatype_enum, tensor_shape=tensor.shape.as_proto())


MODELS: Sequence[AwkwardModel] = (
    model(a_total, COLUMN),
    model(a_hidden_total, COLUMN),
    model(a_constant_table, COLUMN),
    model(twice_the_rows, COLUMN),
    model(any_rank, [{"x": each} for each in (drawn(2, 2), drawn(3), drawn(1, 2, 2), drawn(2, 2, seed=4), drawn(4))]),
    model(scalar_beside_rows, [{"x": drawn(rows), "scale": np.float32(rows)} for rows in (1, 2, 3, 2, 1)]),
    model(no_batch_dimension, [{"a": np.float32(each), "b": floats(each, 1)} for each in (1, 2, np.nan)]),
    model(no_inputs, [{}, {}]),
    model(fixed_batch, [{"x": drawn(2, 3, seed=seed)} for seed in (1, 2, 3)], rejects=[{"x": drawn(1, 3)}]),
    model(batch_in_the_middle, [{"x": drawn(*shape)} for shape in ((2, 3), (1, 3), (4, 3), (3, 1), (2, 5))]),
    model(identity, [*_ROWS, {"x": np.zeros((0, 3), np.float32)}]),
    model(views_of_the_input, _ROWS),
    model(huge_constants, [{"at": each} for each in (ints(0, 1_999_999), ints(5), ints(1, 2, 3))]),
    model(sparse_inside, [*_ROWS, {"x": floats([0, 0, 0], [0, np.nan, 1])}]),
    model(
        many_signatures,
        [
            *(Asked({"x": drawn(rows)}, "one") for rows in (1, 2)),
            *(Asked({"x": drawn(rows, 3), "y": drawn(rows, 3, seed=3)}, "two") for rows in (1, 3)),
            *(Asked({"x": drawn(rows)}, "sum") for rows in (1, 2)),
        ],
    ),
    replace(
        model(
            tf1_with_tables, [{"images/x\u00fc": each} for each in (texts(b"a", b"no"), texts(b"b"), texts(b"", b"a"))]
        ),
        name="tf1 with tables, \u00fc",
    ),
)
