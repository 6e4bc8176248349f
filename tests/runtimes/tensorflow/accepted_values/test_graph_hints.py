"""What real graphs tell of the values that they accept; the oracle is the text of each graph."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.core.inference import STRING, ModelSignature, TensorSpec
from app.core.values.value_hints import NO_HINTS, Elements, Range, ValueHint
from app.runtimes.tensorflow import private_api
from app.runtimes.tensorflow.accepted_values.graph_hints import hints_of_function, hints_of_graph

IDS = tf.TensorSpec([None], tf.int32, name="x")
NUMBERS = tf.TensorSpec([None, None], tf.float32, name="x")
TEXT = tf.TensorSpec([None], tf.string, name="x")


def hint(body: Callable[[Any], Any], spec: tf.TensorSpec) -> ValueHint:
    """Of a function of x."""
    function = tf.function(body, autograph=False).get_concrete_function(spec)
    hints = hints_of_function(function, signature_of(spec), private_api.captures(function.graph))
    return hints.get("x", ValueHint())


def signature_of(spec: tf.TensorSpec) -> ModelSignature:
    dtype = STRING if spec.dtype == tf.string else np.dtype(spec.dtype.as_numpy_dtype)
    return ModelSignature("f", {"x": TensorSpec("x", dtype, tuple(spec.shape))}, {})


def demanded(condition: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that asserts it."""

    def body(x: Any) -> Any:
        tf.debugging.Assert(condition(x), [x])
        return x

    return body


@pytest.mark.parametrize(
    ("condition", "low", "high"),
    [
        (lambda x: tf.reduce_all(x < 5), -5, 4),
        (lambda x: tf.reduce_all((x >= 3) & (x <= 8)), 3, 8),
        (lambda x: tf.reduce_all(tf.logical_and(x < 10, x > 7)), 8, 9),
        (lambda x: tf.logical_not(tf.reduce_any(tf.logical_or(x < 2, x >= 6))), 2, 5),
        (lambda x: tf.reduce_max(x) < 5, -5, 4),
        (lambda x: tf.reduce_all(tf.cast(x - 100, tf.float32) / 2.0 < 5.0) & tf.reduce_all(x > 99), 100, 109),
        (lambda x: tf.reduce_all(-x >= 1) & tf.reduce_all(-x <= 4), -4, -1),
        (lambda x: tf.reduce_all(10 - x > 3) & tf.reduce_all(10 - x < 8), 3, 6),
    ],
)
def test_assertions_give_a_range(condition: Callable[[Any], Any], low: int, high: int) -> None:
    found = hint(demanded(condition), IDS)
    assert found.pools == (Range(low, high),)
    assert found.takes_zero == (low <= 0 <= high)


def test_assertions_in_functions_branches_and_loops_count() -> None:
    inner = tf.function(demanded(lambda x: tf.reduce_all(x >= 7)), autograph=False)
    assert hint(lambda x: inner(tf.identity(x)), IDS).pools == (Range(7, 16),)

    def branches(x: Any) -> Any:
        tf.cond(tf.reduce_all(x < 3), tf.no_op, lambda: tf.debugging.Assert(False, [x]))
        return x

    assert hint(branches, IDS).pools == (Range(-7, 2),)
    one = demanded(lambda each: each > 50)
    assert hint(lambda x: tf.map_fn(one, x), IDS).pools == (Range(51, 60),)


def test_values_that_must_be_equal_to_one_of_several_are_these() -> None:
    found = hint(demanded(lambda x: tf.reduce_all((x == b"one") | (x == b"two"))), TEXT)
    assert set(found.pools[0].values) == {b"one", b"two"}  # type: ignore[union-attr]  # hints are there
    listed = demanded(lambda x: tf.reduce_all(tf.reduce_any(x[:, None] == tf.constant([3, 5, 9]), 1)))
    assert set(hint(listed, IDS).pools[0].values) == {3, 5, 9}  # type: ignore[union-attr]  # hints are there


def test_indices_lie_within_what_they_are_gathered_from() -> None:
    variable, constant = tf.Variable(tf.ones([7, 2])), tf.ones([3, 9])
    assert hint(lambda x: tf.gather(variable, x), IDS).pools == (Range(0, 6),)
    assert hint(lambda x: tf.gather(variable, x - 10), IDS).pools == (Range(10, 16),)
    assert hint(lambda x: tf.gather(constant, x, axis=1), IDS).pools == (Range(0, 8),)
    assert hint(lambda x: tf.one_hot(x, 4), IDS).pools == (Range(0, 3),)


def test_sizes_that_operations_demand() -> None:
    assert hint(lambda x: tf.matmul(x, tf.ones([17, 2])), NUMBERS).sizes == {1: 17}
    assert hint(lambda x: tf.ensure_shape(x, [None, 6]) + 1.0, NUMBERS).sizes == {1: 6}
    assert hint(demanded(lambda x: tf.equal(tf.shape(x)[1], 4)), NUMBERS).sizes == {1: 4}


def test_sizes_that_the_signature_fixes_are_no_news() -> None:
    fixed = tf.TensorSpec([None, 17], tf.float32, name="x")
    assert hint(lambda x: tf.matmul(x, tf.ones([17, 2])), fixed) == ValueHint()


def test_entries_of_a_table_are_read_unless_there_are_too_many() -> None:
    def table(count: int) -> Any:
        keys = tf.strings.as_string(tf.range(count))
        return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, tf.range(count)), -1)

    small, large = table(40), table(200_000)
    found = hint(small.lookup, TEXT)
    (pool,) = found.pools
    assert isinstance(pool, Elements)
    assert len(pool.values) == 16
    assert found.takes_zero  # a miss is a value like any other
    assert hint(large.lookup, TEXT) == ValueHint()
    vectors = tf.ones([40, 2])
    assert not hint(lambda x: tf.gather(vectors, small.lookup(x)), TEXT).takes_zero


def test_a_table_of_other_types_than_the_node_says_is_left_alone() -> None:
    """TensorFlow's export would end the process."""
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1, 2], [1.0, 2.0]), -1.0)
    function = tf.function(lambda x: table.lookup(tf.strings.to_number(x, tf.int32))).get_concrete_function(TEXT)
    graph = function.graph.as_graph_def()
    for node in graph.node:
        if node.op == "LookupTableFindV2":
            node.attr["Tin"].type = tf.string.as_datatype_enum
    handles = {inner.op.name: outer for outer, inner in private_api.captures(function.graph)}
    assert "x" in hints_of_graph(graph, signature_of(TEXT), {"x": "x:0"}, handles)


def test_keys_of_a_table_in_a_graph_of_tensorflow_1_are_those_of_its_initializer() -> None:
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.string, [None], "x")
        keys = tf.lookup.KeyValueTensorInitializer(tf.constant(["red", "blue"]), tf.constant([0, 1], tf.int64))
        table = tf.compat.v1.lookup.StaticHashTable(keys, -1)
        parsed = tf.io.parse_example(x, {"colour": tf.io.FixedLenFeature([], tf.string)})
        table.lookup(parsed["colour"])
    (pool,) = hints_of_graph(graph.as_graph_def(), signature_of(TEXT), {"x": "x:0"})["x"].pools
    assert isinstance(pool, Elements)
    examples = [tf.train.Example.FromString(value) for value in pool.values]
    colours = {example.features.feature["colour"].bytes_list.value[0] for example in examples}
    assert colours == {b"red", b"blue"}


def test_a_line_has_columns_of_the_defaults_types() -> None:
    (pool, *_) = hint(lambda x: tf.io.decode_csv(x, [[0], [0.0], ["a"]], field_delim=";"), TEXT).pools
    assert isinstance(pool, Elements)
    for line in pool.values:
        whole, fraction, _ = bytes(line).split(b";")  # type: ignore[arg-type]  # hints are there
        assert str(int(whole)).encode() == whole
        float(fraction)


def test_an_example_comes_with_its_optional_features_and_without() -> None:
    spec = {"a": tf.io.FixedLenFeature([], tf.int64), "b": tf.io.FixedLenFeature([2], tf.float32, [0.0, 0.0])}
    pools = hint(lambda x: tf.io.parse_example(x, spec), TEXT).pools
    features = [set(tf.train.Example.FromString(pool.values[0]).features.feature) for pool in pools]  # type: ignore[union-attr]  # hints are there
    assert features == [{"a", "b"}, {"a"}]


def test_what_is_not_understood_gives_no_hints() -> None:
    assert hint(lambda x: tf.py_function(lambda each: each, [x], tf.int32), IDS) == ValueHint()
    broken = tf.compat.v1.GraphDef()
    broken.node.add(name="x", op="Placeholder")
    broken.node.add(name="y", op="ParseExampleV2", input=["x"])
    broken.node.add(name="z", op="ParseExample", input=["x"]).attr["Ndense"].i = 10**6
    assert hints_of_graph(broken, signature_of(TEXT), {"x": "x:0"}) in (NO_HINTS, {"x": ValueHint(takes_zero=False)})
    assert hints_of_graph(broken, signature_of(TEXT), {"x": "nowhere:0"}) == NO_HINTS


def test_a_loop_of_tensorflow_1_ends() -> None:
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.int32, [None], "x")
        with tf.compat.v1.variable_scope("loop"):
            tf.compat.v1.disable_control_flow_v2()
            try:
                tf.compat.v1.while_loop(lambda i, _: i < 5, lambda i, v: (i + 1, v + 1), [tf.constant(0), x])
            finally:
                tf.compat.v1.enable_control_flow_v2()
    assert hints_of_graph(graph.as_graph_def(), signature_of(IDS), {"x": "x:0"}) == NO_HINTS


def test_a_large_graph_is_read_quickly() -> None:
    """10^4 nodes take some 30 ms on an idle machine."""

    def body(x: Any) -> Any:
        for _ in range(3000):
            x = tf.identity(x + 1)
        return x

    function = tf.function(body, autograph=False).get_concrete_function(IDS)
    graph = function.graph.as_graph_def()
    assert len(graph.node) > 8000
    begin_s = time.process_time()
    hints_of_graph(graph, signature_of(IDS), {"x": function.inputs[0].name})
    assert time.process_time() - begin_s < 1.0
