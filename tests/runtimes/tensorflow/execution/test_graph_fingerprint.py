"""Equal models have equal fingerprints, whenever they were saved; what computes something else has another one."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from app.runtimes.tensorflow.execution.graph_fingerprint import graph_fingerprint, weights_digest


class Model(tf.Module):
    def __init__(self, weight: float, body: Callable[[Any], Any]) -> None:
        super().__init__()
        self.weight = tf.Variable(weight)
        keys = tf.constant(["a", "b"])
        init = tf.lookup.KeyValueTensorInitializer(keys, tf.constant([weight, 1.0]))
        self.table = tf.lookup.StaticHashTable(init, 0.0)
        self.inner = tf.function(body)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def serve(self, x: Any) -> dict[str, Any]:
        looped = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, self.inner(y)), (0, x))[1]
        return {"y": looped * self.weight + self.table.lookup(tf.constant("a"))}


def saved(folder: Path, weight: float, body: Callable[[Any], Any], *, after: int = 0) -> str:
    for _ in range(after):  # other functions get the numbers
        tf.function(lambda x: x + 1).get_concrete_function(tf.TensorSpec([None]))
    model = Model(weight, body)
    tf.saved_model.save(model, str(folder), signatures=model.serve)
    loaded = tf.saved_model.load(str(folder))
    return graph_fingerprint(loaded.signatures["serving_default"].graph.as_graph_def())


def test_values_of_variables_and_files_of_tables_are_told_apart(tmp_path: Path) -> None:
    for number, weight in enumerate([2.0, 2.0, 3.0]):
        saved(tmp_path / str(number), weight, tf.tanh, after=number)
    first, same, other = (weights_digest(tmp_path / name) for name in "012")
    assert (first == same, first == other, len(first)) == (True, False, 64)
    (tmp_path / "0" / "assets" / "words.txt").write_text("a word")
    assert weights_digest(tmp_path / "0") != same


def test_a_later_export_of_the_same_model_with_other_weights_has_the_same(tmp_path: Path) -> None:
    one = saved(tmp_path / "1", 2.0, lambda x: tf.tanh(x) + 1)
    assert one == saved(tmp_path / "2", 3.0, lambda x: tf.tanh(x) + 1, after=7)
    assert len(one) == 64


@pytest.mark.parametrize(
    "other",
    [lambda x: tf.sin(x) + 1, lambda x: tf.tanh(x) + 2, lambda x: 1 - tf.tanh(x), lambda x: tf.tanh(x + 1)],
)
def test_what_computes_something_else_deep_inside_has_another_one(other: Callable[[Any], Any], tmp_path: Path) -> None:
    assert saved(tmp_path / "1", 2.0, lambda x: tf.tanh(x) + 1) != saved(tmp_path / "2", 2.0, other)


def test_a_graph_that_calls_itself_has_one() -> None:
    graph = tf.function(lambda x: x).get_concrete_function(tf.TensorSpec([None])).graph.as_graph_def()
    function = graph.library.function.add()
    function.signature.name = "circle"
    call = function.node_def.add()
    call.name, call.op = "again", "PartitionedCall"
    call.attr["f"].func.name = "circle"
    start = graph.node.add()
    start.name, start.op = "start", "PartitionedCall"
    start.attr["f"].func.name = "circle"
    assert len(graph_fingerprint(graph)) == 64


def test_a_large_asset_is_read_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    size = 64 << 20
    with (tmp_path / "assets" / "words.txt").open("wb") as file:
        file.truncate(size)
    tracemalloc.start()
    try:
        weights_digest(tmp_path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < size / 16
