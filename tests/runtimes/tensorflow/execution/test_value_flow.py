"""Which inputs may keep a call busy for hours or take all memory, by real graphs."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from app.runtimes.tensorflow.execution.value_flow import steering_inputs

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
