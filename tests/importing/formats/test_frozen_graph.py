"""The reader of frozen graphs: ends, switches of training, a free batch, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.importing.formats.frozen_graph import read
from app.importing.graphs import graph_file
from app.importing.order import CannotImport, ImportOrder
from app.importing.source import Source
from tests.importing.formats.proven import answers, proven

tf1 = tf.compat.v1


def graph_of(build: Callable[[], Any]) -> Any:
    """The GraphDef of what a function builds, with loops and branches as TensorFlow 1 had them."""
    with tf.Graph().as_default() as graph:
        tf1.disable_control_flow_v2()
        try:
            build()
        finally:
            tf1.enable_control_flow_v2()
    return graph.as_graph_def(add_shapes=True)


def written(path: Path, build: Callable[[], Any]) -> Path:
    path.write_bytes(graph_of(build).SerializeToString())
    return path


def source_of(path: Path, **order: Any) -> Source:
    return read(path, ImportOrder(str(path), "", **order))


def weights(*shape: int) -> Any:
    return tf.constant(np.random.default_rng(1).standard_normal(shape), tf.float32)


def classifier() -> None:
    """image [1, 8, 8, 1], as many frozen graphs: a fixed batch, a switch, dropout, checks and summaries."""
    image = tf1.placeholder(tf.float32, [1, 8, 8, 1], name="image")
    training = tf1.placeholder(tf.bool, name="phase_train")
    keep = tf1.placeholder(tf.float32, name="keep_prob")
    tf1.placeholder(tf.float32, [None], name="unread")
    features = tf.nn.relu(tf.nn.conv2d(image, weights(3, 3, 1, 4), 1, "SAME"))
    features = tf1.cond(training, lambda: features * 0.0, lambda: features * 2.0)
    features = tf1.nn.dropout(tf.reduce_mean(features, [1, 2]), keep_prob=keep)
    with tf1.control_dependencies([tf1.assert_greater(tf.reduce_sum(features), -1e9)]):
        logits = tf.matmul(features, weights(4, 3), name="logits")
    tf1.summary.histogram("seen", logits)
    tf.nn.softmax(logits, name="scores")


def test_ends_are_found_switches_fixed_and_the_batch_is_freed(tmp_path: Path) -> None:
    source = source_of(written(tmp_path / "graph.pb", classifier))
    assert sorted(source.notes) == ["keep_prob is fixed to 1.0", "phase_train is fixed to False"]
    signature = proven(source, tmp_path / "1")["serving_default"]
    assert {name: str(spec) for name, spec in signature.inputs.items()} == {"image": "float32[?,8,8,1]"}
    assert {name: str(spec) for name, spec in signature.outputs.items()} == {"scores": "float32[?,3]"}
    assert not signature.draws, "dropout that keeps all draws nothing"
    assert signature.all_rows


def test_ends_that_are_asked_for_may_lie_within_the_graph(tmp_path: Path) -> None:
    file = written(tmp_path / "graph.pb", classifier)
    source = source_of(file, inputs=["dropout/SelectV2:0"], outputs=["logits", "scores:0"])
    signature = proven(source, tmp_path / "1")["serving_default"]
    assert list(signature.inputs) == ["dropout/SelectV2"]
    assert sorted(signature.outputs) == ["logits", "scores"]


def test_an_unknown_name_is_an_error_that_lists_near_ones(tmp_path: Path) -> None:
    with pytest.raises(CannotImport, match="--outputs score: the graph has no such node; near it are scores"):
        source_of(written(tmp_path / "graph.pb", classifier), outputs=["score"])


def test_a_batch_that_the_graph_needs_stays(tmp_path: Path) -> None:
    def build() -> None:
        x = tf1.placeholder(tf.float32, [1, 4], name="x")
        tf.reshape(x, [1, 2, 2], name="y")

    source = source_of(written(tmp_path / "graph.pb", build))
    assert "stays as it is" in source.notes[0]
    assert str(proven(source, tmp_path / "1")["serving_default"].inputs["x"]) == "float32[1,4]"


def test_a_first_size_that_is_no_batch_is_not_freed(tmp_path: Path) -> None:
    def build() -> None:
        x = tf1.placeholder(tf.float32, [3, 4], name="x")
        tf.identity(x - tf.reduce_mean(x, 0), name="y")  # a row depends on the others

    source = source_of(written(tmp_path / "graph.pb", build))
    assert str(proven(source, tmp_path / "1")["serving_default"].inputs["x"]) == "float32[3,4]"


def test_an_unknown_rank_is_that_of_the_operation_that_reads_it(tmp_path: Path) -> None:
    def build() -> None:
        x = tf1.placeholder(tf.float32, name="x")
        tf.raw_ops.MatMul(a=tf.identity(x), b=weights(4, 2), name="y")

    source = source_of(written(tmp_path / "graph.pb", build))
    assert str(proven(source, tmp_path / "1")["serving_default"].inputs["x"]) == "float32[?,4]"


def test_a_loop_of_tensorflow_1_and_several_outputs_are_exported(tmp_path: Path) -> None:
    def build() -> None:
        x = tf1.placeholder(tf.float32, [None, 2], name="x")
        _, doubled = tf1.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * 2.0), [tf.constant(0), x])
        tf.identity(doubled, name="doubled")
        tf.nn.top_k(x, 1, name="best")

    version = tmp_path / "1"
    signature = proven(source_of(written(tmp_path / "graph.pb", build)), version)["serving_default"]
    assert sorted(signature.outputs) == ["best", "best:1", "doubled"]
    found = answers(version, "serving_default", {"x": np.array([[1.0, 5.0]], np.float32)})
    assert found["doubled"].tolist() == [[8.0, 40.0]]
    assert found["best:1"].tolist() == [[1]]


def test_a_training_graph_with_several_ends_asks_for_them(tmp_path: Path) -> None:
    def build() -> None:
        x = tf1.placeholder(tf.float32, [None, 4], name="x")
        labels = tf1.placeholder(tf.int64, [None], name="labels")
        hidden = tf.matmul(x, weights(4, 3), name="one")
        tf.nn.relu(hidden, name="two"), tf.nn.tanh(hidden, name="three")
        tf1.losses.sparse_softmax_cross_entropy(labels, hidden)

    with pytest.raises(CannotImport, match=r"--outputs NAME,NAME names them; candidates are .*two \(Relu\)"):
        source_of(written(tmp_path / "graph.pb", build))


def test_what_training_computes_is_no_output(tmp_path: Path) -> None:
    def build() -> None:
        x = tf1.placeholder(tf.float32, [None, 4], name="x")
        y = tf1.placeholder(tf.int64, [None], name="y_")
        logits = tf.matmul(x, weights(4, 3))
        predictions = tf.nn.softmax(logits, name="predictions")
        loss = tf1.losses.sparse_softmax_cross_entropy(y, logits)
        tf.gradients(loss, x)
        tf.reduce_mean(tf.cast(tf.equal(tf.argmax(predictions, 1), y), tf.float32), name="accuracy")

    signature = proven(source_of(written(tmp_path / "graph.pb", build)), tmp_path / "1")["serving_default"]
    assert list(signature.inputs) == ["x"]
    assert "predictions" in signature.outputs
    assert "accuracy" not in signature.outputs


def test_a_graph_as_text_is_read(tmp_path: Path) -> None:
    file = tmp_path / "graph.pbtxt"
    file.write_text(str(graph_of(lambda: tf.identity(tf1.placeholder(tf.float32, [None], name="x"), name="y"))))
    assert list(source_of(file).endpoints[0].inputs) == ["x"]


# --- what is refused ---


def test_an_operation_that_reads_files_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "graph.pb", lambda: tf.io.read_file(tf1.placeholder(tf.string, [], name="x"), name="y"))
    with pytest.raises(CannotImport, match=r"ReadFile .*reads a file"):
        source_of(file)


def test_a_graph_with_variables_says_where_its_weights_are(tmp_path: Path) -> None:
    def build() -> None:
        x = tf1.placeholder(tf.float32, [None], name="x")
        tf.multiply(x, tf1.get_variable("weight", [], use_resource=False), name="y")

    with pytest.raises(CannotImport, match="no frozen graph: the weights of its 1 variables, such as 'weight'"):
        source_of(written(tmp_path / "graph.pb", build))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 something", b"\x0a\xff\xff\xff\x7f"])
def test_what_is_no_graph_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "graph.pb").write_bytes(content)
    with pytest.raises(CannotImport, match="cut short or no graph"):
        source_of(tmp_path / "graph.pb")


def test_a_cut_graph_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "graph.pb", classifier)
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(CannotImport, match="cut short or no graph"):
        source_of(file)


def test_a_constant_that_declares_terabytes_is_refused(tmp_path: Path) -> None:
    graph = graph_of(lambda: tf.add(tf1.placeholder(tf.float32, [None], name="x"), 1.0, name="y"))
    for node in graph.node:
        if node.op == "Const":
            node.attr["value"].tensor.tensor_shape.dim.add(size=1 << 40)
    (tmp_path / "graph.pb").write_bytes(graph.SerializeToString())
    with pytest.raises(CannotImport, match="declare 4,398,046,511,104 bytes"):
        source_of(tmp_path / "graph.pb")


def test_an_input_of_a_huge_shape_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "graph.pb", lambda: tf.abs(tf1.placeholder(tf.int8, [1, 1 << 40], name="x"), name="y"))
    with pytest.raises(CannotImport, match="at most 2"):
        source_of(file)


def test_too_many_nodes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_file, "MOST_NODES", 5)
    with pytest.raises(CannotImport, match="nodes; expected at most 5"):
        source_of(written(tmp_path / "graph.pb", classifier))


def test_a_cycle_is_refused(tmp_path: Path) -> None:
    graph = graph_of(lambda: tf.abs(tf.abs(tf1.placeholder(tf.float32, [None], name="x"), name="one"), name="two"))
    nodes = {node.name: node for node in graph.node}
    nodes["one"].op = "AddV2"
    nodes["one"].input.append("two")
    (tmp_path / "graph.pb").write_bytes(graph.SerializeToString())
    with pytest.raises(CannotImport):
        source_of(tmp_path / "graph.pb", outputs=["two"])


def test_an_unknown_operation_names_itself(tmp_path: Path) -> None:
    graph = graph_of(lambda: tf.abs(tf1.placeholder(tf.float32, [None], name="x"), name="y"))
    next(node for node in graph.node if node.name == "y").op = "Frobnicate"
    (tmp_path / "graph.pb").write_bytes(graph.SerializeToString())
    with pytest.raises(CannotImport, match="operation Frobnicate "):
        source_of(tmp_path / "graph.pb")
