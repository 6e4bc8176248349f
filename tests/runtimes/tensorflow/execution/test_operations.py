from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from app.runtimes.tensorflow.execution.operations import (
    drawing_operations,
    has_loops,
    operations_with_state,
    rounds_to_integers,
    takes_one_rank,
    writing_operations,
)
from app.runtimes.tensorflow.saved_model.saved_model import SavedModel
from tests.awkward.words import asset_read_in_each_call
from tests.support import savedmodels

FLOATS = tf.TensorSpec([2, 3], tf.float32, name="x")
WHOLE = tf.TensorSpec([2, 3], tf.int32, name="x")


def graph_of(function: Callable[[Any], Any], spec: tf.TensorSpec = FLOATS) -> Any:
    return tf.function(function, input_signature=[spec], autograph=False).get_concrete_function().graph.as_graph_def()


def test_a_network_keeps_no_state() -> None:
    def network(x: Any) -> Any:
        rows = tf.shape(x)[0]
        return tf.nn.softmax(tf.reshape(tf.nn.relu(x @ tf.ones([3, 4])), [rows, 4])[:, 1:])

    assert operations_with_state(graph_of(network)) == []


@pytest.mark.parametrize(
    ("function", "operation"),
    [
        (lambda x: x + tf.random.uniform([3]), "RandomUniform"),
        (lambda x: x + tf.cast(tf.timestamp(), tf.float32), "Timestamp"),
        (lambda x: tf.numpy_function(lambda y: y, [x], tf.float32), "PyFunc"),
        (lambda x: tf.cond(x[0, 0] > 0, lambda: tf.random.normal([3]), lambda: x[0]), "RandomStandardNormal"),
    ],
)
def test_chance_time_and_python_are_state_also_in_branches(function: Callable[[Any], Any], operation: str) -> None:
    assert operations_with_state(graph_of(function)) == [operation]


def test_reading_variables_and_tables_is_not_but_writing_is() -> None:
    variable = tf.Variable([1.0, 2.0, 3.0])
    table = tf.lookup.experimental.MutableHashTable(tf.int32, tf.float32, 0.0)
    assert operations_with_state(graph_of(lambda x: x + variable)) == []
    assert operations_with_state(graph_of(table.lookup, WHOLE)) == []
    assert operations_with_state(graph_of(lambda x: variable.assign(x[0]))) == ["AssignVariableOp"]

    def insert(x: Any) -> Any:
        table.insert(x, tf.cast(x, tf.float32))
        return x

    assert operations_with_state(graph_of(insert, WHOLE)) == ["LookupTableInsertV2"]


def test_the_reference_variables_of_tensorflow_1_are_state() -> None:
    with tf.Graph().as_default() as graph:
        counter = tf.compat.v1.get_variable("counter", initializer=0, use_resource=False)
        tf.compat.v1.assign_add(counter, 1)
    assert "AssignAdd" in operations_with_state(graph.as_graph_def())


def test_an_operation_that_tensorflow_does_not_know_is_state() -> None:
    graph = tf.compat.v1.GraphDef()
    graph.node.add(name="mine", op="MyOwnOperation")
    assert operations_with_state(graph) == ["MyOwnOperation"]
    graph.library.function.add().signature.name = "MyOwnOperation"
    assert operations_with_state(graph) == []


def test_a_model_that_counts_keeps_state(tmp_path: Path) -> None:
    savedmodels.make_counter(tmp_path)
    graph = SavedModel(tmp_path)._functions["serving_default"].plain.graph.as_graph_def()
    assert operations_with_state(graph) == ["AssignAddVariableOp"]


def test_rounding_to_whole_numbers_is_seen() -> None:
    assert rounds_to_integers(graph_of(lambda x: tf.cast(x, tf.uint8)))
    assert not rounds_to_integers(graph_of(lambda x: tf.cast(tf.cast(x, tf.float16), tf.bool)))
    assert not rounds_to_integers(graph_of(lambda x: tf.cast(x, tf.float32), WHOLE))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + tf.random.uniform([3]),
        lambda x: x + tf.cast(tf.timestamp(), tf.float32),
        lambda x: tf.cond(x[0, 0] > 0, lambda: tf.random.normal([3]), lambda: x[0]),
        lambda x: tf.map_fn(lambda row: row * 2.0, x),
        lambda x: tf.debugging.check_numerics(x, "x"),
    ],
)
def test_chance_time_and_what_ends_with_its_call_write_nothing(function: Callable[[Any], Any]) -> None:
    assert writing_operations(graph_of(function)) == []


def test_writes_are_found_in_functions_branches_and_loops() -> None:
    count, table = tf.Variable(0.0), tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)
    queue = tf.queue.FIFOQueue(1, tf.float32, shapes=[[]])
    generator = tf.random.Generator.from_seed(1)
    inner = tf.function(lambda: count.assign_add(1.0), autograph=False)

    def insert(x: Any) -> Any:
        table.insert(tf.cast(x[0], tf.int64), tf.cast(x[0], tf.int64))
        return x

    for function, operation in (
        (lambda x: x + inner(), "AssignAddVariableOp"),
        (lambda x: tf.cond(x[0, 0] > 0, lambda: x + inner(), lambda: x), "AssignAddVariableOp"),
        (lambda x: tf.while_loop(lambda y: y[0, 0] < 1.0, lambda y: (y + inner(),), [x]), "AssignAddVariableOp"),
        (insert, "LookupTableInsertV2"),
        (lambda x: x + queue.dequeue(), "QueueDequeueV2"),
        (lambda x: x + generator.normal([3]), "RngReadAndSkip"),
    ):  # fmt: skip
        assert writing_operations(graph_of(function)) == [operation]


def test_random_operations_are_named() -> None:
    assert drawing_operations(graph_of(lambda x: x + tf.random.uniform([3]))) == ["RandomUniform"]
    assert drawing_operations(graph_of(lambda x: x * 2.0)) == []


def test_a_function_that_nothing_calls_does_not_count() -> None:
    count = tf.Variable(0.0)
    graph = graph_of(lambda x: x * 2.0)
    graph.library.CopyFrom(graph_of(lambda x: x + tf.function(lambda: count.assign_add(1.0))()).library)
    assert graph.library.function
    assert operations_with_state(graph) == []


def test_the_signatures_of_a_model_tell_what_they_write_and_draw(tmp_path: Path) -> None:
    savedmodels.make_counter(tmp_path)
    assert SavedModel(tmp_path).signatures["serving_default"].writes == ("AssignAddVariableOp",)


def test_loops_are_found_in_functions() -> None:
    inner = tf.function(lambda x: tf.map_fn(lambda row: row * 2.0, x), autograph=False)
    assert has_loops(graph_of(inner))
    assert not has_loops(graph_of(lambda x: x * 2.0))


def test_operations_on_images_take_one_rank() -> None:
    assert takes_one_rank(graph_of(lambda x: tf.nn.max_pool2d(tf.reshape(x, [1, 1, 1, -1]), 1, 1, "SAME")))
    assert not takes_one_rank(graph_of(lambda x: tf.nn.bias_add(tf.reshape(x, [-1, 1]), [1.0])))
    assert all(each.one_rank for each in SavedModel(Path("models/digits/1")).signatures.values())


def test_a_signature_that_reads_an_asset_in_each_call_says_so(tmp_path: Path) -> None:
    asset_read_in_each_call(tmp_path / "1")
    savedmodels.make_counter(tmp_path / "2")
    assert SavedModel(tmp_path / "1").signatures["serving_default"].reads_files
    assert not SavedModel(tmp_path / "2").signatures["serving_default"].reads_files
