"""Which inputs may keep a call busy for hours or take all memory, by real graphs."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from app.runtimes.tensorflow.execution.value_flow import rejecting_nodes, steering_inputs

NUMBERS = tf.TensorSpec([None], tf.int32, name="n")
FLOATS = tf.TensorSpec([None, 3], tf.float32, name="x")


def steering(body: Callable[..., Any], *specs: tf.TensorSpec, autograph: bool = True) -> set[str]:
    graph = tf.function(body, autograph=autograph).get_concrete_function(*specs)
    names = [each.op.name for each in graph.inputs if each.dtype != tf.resource]
    return set(steering_inputs(graph.graph.as_graph_def(), names))


def counts(n: Any) -> Any:
    return tf.while_loop(lambda i, _: i < n[0], lambda i, total: (i + 1, total + i), (0, 0))[1]


def counts_indirectly(n: Any) -> Any:
    """The condition sees the input only from the second turn on."""
    return tf.while_loop(lambda i, end, _: i < end, lambda i, end, later: (i + 1, later, later), (0, 3, n[0]))[0]


def counts_inside(n: Any) -> Any:
    inner = tf.function(counts, autograph=False)
    return tf.cond(n[1] > 2, lambda: inner(n), lambda: 0)


def repeats_a_product(x: Any) -> Any:
    return tf.while_loop(lambda i, _: i < 5, lambda i, product: (i + 1, product * x), (0, x))[1]


def reads_in_turn(x: Any) -> Any:
    return tf.map_fn(lambda row: row * 2.0, x)


def reads_a_series(x: Any, layer: Any = tf.keras.layers.LSTM(2)) -> Any:  # noqa: B008 - its variables are made once
    return layer(x[:, :, None])


@pytest.mark.parametrize(
    "body",
    [
        counts, counts_indirectly, counts_inside, lambda n: tf.range(n[0]), lambda n: tf.zeros([n[0]]),
        lambda n: tf.tile([1.0], n[:1]), lambda n: tf.repeat([1.0, 2.0], n), tf.sequence_mask,
        lambda n: tf.math.segment_sum(n, n), lambda n: tf.one_hot(n, n[0]),
    ],
)  # fmt: skip
def test_a_size_or_a_number_of_turns_steers(body: Callable[..., Any]) -> None:
    assert steering(body, NUMBERS, autograph=False) == {"n"}


@pytest.mark.parametrize(
    "body", [repeats_a_product, reads_in_turn, tf.nn.softmax, lambda x: tf.zeros(tf.shape(x)) + x, reads_a_series]
)
def test_values_that_are_only_computed_with_do_not(body: Callable[..., Any]) -> None:
    assert steering(body, FLOATS, autograph=False) == set()


def test_only_the_input_that_steers_is_named() -> None:
    body = lambda n, x: tf.gather(x, tf.range(n[0]))  # noqa: E731 - a model of one line
    assert steering(body, NUMBERS, FLOATS) == {"n"}
    assert steering(lambda n, x: tf.gather(x, n), NUMBERS, FLOATS) == set()


def test_an_unknown_operation_is_not_trusted() -> None:
    assert steering(lambda x: tf.linalg.svd(x, compute_uv=False), FLOATS) == {"x"}


# --- nodes that may reject values ---

FIXED = tf.TensorSpec([2, 3], tf.float32, name="x")
WHOLE = tf.TensorSpec([2, 3], tf.int32, name="x")


def graph_of(function: Callable[[Any], Any], spec: tf.TensorSpec = FIXED) -> Any:
    return tf.function(function, input_signature=[spec], autograph=False).get_concrete_function().graph.as_graph_def()


def rejecting(function: Callable[[Any], Any], spec: tf.TensorSpec = FIXED) -> list[str]:
    graph = graph_of(function, spec)
    names = rejecting_nodes(graph, ["x"])
    return [node.op for node in graph.node if node.name in names]


def test_a_network_takes_any_value() -> None:
    def network(x: Any) -> Any:
        rows = tf.shape(x)[0]
        return tf.nn.softmax(tf.reshape(tf.nn.relu(x @ tf.ones([3, 4])), [rows, 4])[:, 1:])

    assert rejecting(network) == []


@pytest.mark.parametrize(
    ("function", "spec", "operations"),
    [
        (lambda x: tf.gather(tf.ones([9, 4]), x), WHOLE, ["GatherV2"]),
        (lambda x: tf.gather(tf.cast(x, tf.float32), [0]), WHOLE, ["GatherV2"]),
        (lambda x: x // 2, WHOLE, ["FloorDiv"]),
        (lambda x: x // 2, FIXED, []),
        (lambda x: tf.ones([9])[x[0, 0] :], WHOLE, ["StridedSlice"]),
        (lambda x: x[1:, ::2], FIXED, []),
        (lambda x: tf.gather(tf.ones([9, 4]), tf.shape(x)[0]), FIXED, []),
        (lambda x: tf.linalg.inv(x[:, :2]), FIXED, ["MatrixInverse"]),
    ],
)
def test_what_may_reject_a_value_that_comes_from_an_input(
    function: Callable[[Any], Any], spec: tf.TensorSpec, operations: list[str]
) -> None:
    assert rejecting(function, spec) == operations


def test_nodes_in_any_order_are_followed() -> None:
    graph = graph_of(lambda x: tf.gather(tf.ones([9, 4]), x + 1), WHOLE)
    reverse = tf.compat.v1.GraphDef(library=graph.library)
    reverse.node.extend(reversed(graph.node))
    assert rejecting_nodes(reverse, ["x"]) == rejecting_nodes(graph, ["x"]) != []
