"""SavedModels as TensorFlow 1 wrote them: reference variables, legacy tables, assets. `make_...(path)` writes folder
`path`. The first ones are like those of TensorFlow Serving's tests: its testdata/export_counter.py and
saved_model_half_plus_two.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef, TensorInfo
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

tf1 = tf.compat.v1

#: The variable of `large`.
LARGE_MB = 40


def make_counter(path: Path) -> None:
    """One reference variable, from 0: get_counter, incr_counter, incr_counter_by (delta), reset_counter -> output."""
    with _export(path) as (_, signatures):
        counter = tf1.Variable(0.0, name="counter", use_resource=False)
        delta = tf1.placeholder(tf.float32, name="delta")
        signatures["get_counter"] = _signature({}, {"output": counter})
        signatures["incr_counter"] = _signature({}, {"output": counter.assign_add(1.0)})
        signatures["incr_counter_by"] = _signature({"delta": delta}, {"output": counter.assign_add(delta)})
        signatures["reset_counter"] = _signature({}, {"output": counter.assign(0.0)})


def make_half_plus_two(path: Path) -> None:
    """x/2+2; see make_half_plus_three."""
    _make_half_plus(path, 2.0)


def make_half_plus_three(path: Path) -> None:
    """x [batch, 1] -> y = x/2+3; classify and regress of tf.Example with a feature x; an asset file; an init op that
    assigns its name to a variable.
    """
    _make_half_plus(path, 3.0)


def _make_half_plus(path: Path, more: float) -> None:
    with _export(path) as (options, signatures):
        a, b = (tf1.Variable(value, name=name, use_resource=False) for name, value in (("a", 0.5), ("b", more)))
        examples = tf1.placeholder(tf.string, [None], name="tf_example")
        x = tf.identity(tf1.parse_example(examples, {"x": tf1.FixedLenFeature([1], tf.float32)})["x"], name="x")
        y = tf.add(tf.multiply(a, x), b, name="y")
        signatures["serving_default"] = _signature({"x": x}, {"y": y})
        signatures["regress_x_to_y"] = _signature({"inputs": examples}, {"outputs": y}, "regress")
        signatures["classify_x_to_y"] = _signature({"inputs": examples}, {"scores": y}, "classify")

        asset = path.parent / f"{path.name}.foo.txt"
        asset.parent.mkdir(parents=True, exist_ok=True)
        asset.write_text("asset-file-contents")
        tf1.add_to_collection(tf1.GraphKeys.ASSET_FILEPATHS, tf.constant(str(asset)))
        name = tf1.Variable("", name="filename_tensor", trainable=False, collections=[], use_resource=False)
        options |= {
            "assets_collection": tf1.get_collection(tf1.GraphKeys.ASSET_FILEPATHS),
            "main_op": tf.group(name.assign(asset.name)),
        }
        signatures["filename"] = _signature({}, {"filename": name})
    asset.unlink()


def make_half_plus_three_of_0_12(path: Path) -> None:
    """make_half_plus_three as TensorFlow 0.12 wrote it: older operations, legacy_init_op, tensors without a type."""
    make_half_plus_three(path)
    file = path / "saved_model.pb"
    proto = SavedModel.FromString(file.read_bytes())
    graph = proto.meta_graphs[0]
    for node in graph.graph_def.node:
        node.op = "Variable" if node.op == "VariableV2" else node.op
    for operation in graph.meta_info_def.stripped_op_list.op:
        operation.name = "Variable" if operation.name == "VariableV2" else operation.name
    graph.graph_def.versions.producer = 19
    graph.collection_def["legacy_init_op"].CopyFrom(graph.collection_def["saved_model_main_op"])
    del graph.collection_def["saved_model_main_op"]
    for definition in graph.signature_def.values():
        for tensor in (*definition.inputs.values(), *definition.outputs.values()):
            tensor.CopyFrom(TensorInfo(name=tensor.name))
    file.write_bytes(proto.SerializeToString())


def make_vocabulary(path: Path) -> None:
    """words [batch] -> ids [batch]: their lines in an asset, by a table of TensorFlow 0.x, whose handle is a reference;
    -1 for others.
    """
    file = path.parent / f"{path.name}.words"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("a\nb\nc\n")
    with _export(path) as (options, signatures):
        words = tf1.placeholder(tf.string, [None], name="words")
        asset = tf.constant(str(file))
        tf1.add_to_collection(tf1.GraphKeys.ASSET_FILEPATHS, asset)
        table = tf.raw_ops.HashTable(key_dtype=tf.string, value_dtype=tf.int64)
        fill = tf.raw_ops.InitializeTableFromTextFile(table_handle=table, filename=asset, key_index=-2, value_index=-1)
        ids = tf.raw_ops.LookupTableFind(table_handle=table, keys=words, default_value=tf.constant(-1, tf.int64))
        signatures["serving_default"] = _signature({"words": words}, {"ids": ids})
        options |= {
            "assets_collection": tf1.get_collection(tf1.GraphKeys.ASSET_FILEPATHS),
            "main_op": tf.group(fill),
        }
    file.unlink()


def make_partitioned(path: Path) -> None:
    """rows [batch] -> embedding [batch, 2]: row i is (2i, 2i+1), of a reference variable in three parts."""
    with _export(path) as (_, signatures):
        rows = tf1.placeholder(tf.int64, [None], name="rows")
        with tf1.variable_scope("", partitioner=tf1.fixed_size_partitioner(3), use_resource=False):
            initial = tf.reshape(tf.range(12.0), [6, 2])
            table = tf1.get_variable(
                "table",
                [6, 2],
                initializer=lambda shape, dtype, partition_info: tf.slice(initial, partition_info.var_offset, shape),
            )
        embedding = tf.nn.embedding_lookup(tf.convert_to_tensor(table), rows)
        signatures["serving_default"] = _signature({"rows": rows}, {"embedding": embedding})


def make_awkward(path: Path) -> None:
    """A reference variable and signatures of odd forms: `echo` returns its input; `twice` one tensor by two names;
    `parts` has an output that fails for text that is no number, and one that does not; `unfed` needs a placeholder
    that is no input.
    """
    with _export(path) as (_, signatures):
        scale = tf1.Variable(3.0, name="scale", use_resource=False)
        x, other = (tf1.placeholder(tf.float32, [None], name=name) for name in ("x", "other"))
        text = tf1.placeholder(tf.string, [None], name="text")
        scaled = x * scale
        signatures["echo"] = _signature({"x": x}, {"x": x, "scaled": scaled})
        signatures["twice"] = _signature({"x": x}, {"one": scaled, "two": scaled})
        outputs = {"number": tf.strings.to_number(text) * scale, "length": tf.strings.length(text)}
        signatures["parts"] = _signature({"text": text}, outputs)
        signatures["unfed"] = _signature({"x": x}, {"y": scaled + other})


def make_unfed(path: Path) -> None:
    """Without references: `whole` (x -> y = 3x), and `unfed`, which needs a placeholder that is no input."""
    with _export(path) as (_, signatures):
        scale = tf1.Variable(3.0, name="scale", use_resource=True)
        x, other = (tf1.placeholder(tf.float32, [None], name=name) for name in ("x", "other"))
        signatures["whole"] = _signature({"x": x}, {"y": x * scale})
        signatures["unfed"] = _signature({"x": x}, {"y": x + other})


def make_large(path: Path) -> None:
    """x [batch] -> y = x times an element of a reference variable of LARGE_MB."""
    with _export(path) as (_, signatures):
        x = tf1.placeholder(tf.float32, [None], name="x")
        large = tf1.Variable(tf.ones([LARGE_MB, 1 << 18]), name="large", use_resource=False)
        signatures["serving_default"] = _signature({"x": x}, {"y": x * large[0, 0]})


@contextmanager
def _export(path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yields the builder's options and signatures, to be filled in; the graph is built in the block."""
    options: dict[str, Any] = {}
    signatures: dict[str, Any] = {}
    with tf.Graph().as_default(), tf1.Session() as session:
        yield options, signatures
        session.run(tf1.global_variables_initializer())
        builder = tf1.saved_model.Builder(str(path))
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=signatures, **options)
        builder.save()


def _signature(inputs: dict[str, Any], outputs: dict[str, Any], method: str = "predict") -> Any:
    return SignatureDef(
        inputs={name: _info(tensor) for name, tensor in inputs.items()},
        outputs={name: _info(tensor) for name, tensor in outputs.items()},
        method_name=f"tensorflow/serving/{method}",
    )


def _info(tensor: Any) -> Any:
    return TensorInfo(name=tensor.name, dtype=tensor.dtype.as_datatype_enum, tensor_shape=tensor.shape.as_proto())
