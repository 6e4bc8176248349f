"""The rewriting alone: graphs with constant weights, whose parts are looked at and not run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.runtimes.tensorflow.sharding.graph_sharding import CannotShard, GraphSharding

DEVICES = ("GPU:0", "GPU:1", "GPU:2")


def weights(*shape: int) -> Any:
    return tf.constant(np.arange(np.prod(shape), dtype=np.float32).reshape(shape))


def sharded(call: Callable[[Any], Any], min_bytes: float = 0) -> GraphSharding:
    with tf.Graph().as_default() as graph:
        tf.identity(call(tf.compat.v1.placeholder(tf.float32, [None, 6], "x")), "y")
    return GraphSharding(graph.as_graph_def(), lambda _: None, DEVICES, min_bytes)


def node(found: GraphSharding, operation: str) -> list[Any]:
    return [each for each in found.graph.node if each.op == operation]


def test_shares_are_as_equal_as_they_can_be_and_each_lies_on_its_device() -> None:
    found = sharded(lambda x: x @ weights(6, 8))
    assert [(part.value.shape, part.device) for part in found.parts] == [
        ((6, 3), "GPU:0"), ((6, 3), "GPU:1"), ((6, 2), "GPU:2"),
    ]  # fmt: skip
    assert np.array_equal(np.concatenate([part.value for part in found.parts], 1), weights(6, 8))
    assert [each.device for each in node(found, "MatMul")] == [f"/device:{device}" for device in DEVICES]
    assert [each.device for each in node(found, "ReadVariableOp")] == [f"/device:{device}" for device in DEVICES]


def test_columns_are_put_together_on_the_first_device_under_the_old_name() -> None:
    found = sharded(lambda x: tf.nn.softmax(tf.matmul(x, weights(6, 9), name="layer")))
    (whole,), (following,) = node(found, "ConcatV2"), node(found, "Softmax")
    assert (whole.name, whole.device) == ("layer", "/device:GPU:0")
    assert list(whole.input) == ["layer/part_0", "layer/part_1", "layer/part_2", "layer/axis"]
    assert list(following.input) == ["layer"]


def test_a_pair_is_added_once() -> None:
    found = sharded(lambda x: tf.nn.relu(tf.nn.bias_add(x @ weights(6, 9), weights(9))) @ weights(9, 4))
    assert [layer.by for layer in found.layers] == ["columns", "rows"]
    (total,) = node(found, "AddN")
    assert len(total.input) == len(node(found, "Relu")) == len(DEVICES)


@pytest.mark.parametrize(
    ("shape", "min_bytes"),
    [
        ((6, 2), 0),  # fewer columns than devices
        ((6, 9), 6 * 9 * 4 + 1),
    ],
)
def test_small_layers_stay_whole(shape: tuple[int, int], min_bytes: float) -> None:
    found = sharded(lambda x: x @ weights(*shape), min_bytes)
    assert found.layers == []
    assert found.parts == []
    assert len(node(found, "MatMul")) == 1


def test_what_no_device_has_a_share_of_is_added_to_the_whole() -> None:
    found = sharded(lambda x: (x @ weights(6, 6) + x) @ weights(6, 6))
    assert [layer.by for layer in found.layers] == ["columns", "columns"]


def test_one_number_is_for_all_columns_and_a_vector_is_split_with_them() -> None:
    found = sharded(lambda x: (0.5 * (x @ weights(6, 9)) - weights(1, 9)) @ weights(9, 9))
    assert [layer.by for layer in found.layers] == ["columns", "rows"]
    assert sorted({part.value.shape for part in found.parts}) == [(1, 3), (3, 9), (6, 3)]


def test_layers_that_are_multiplied_by_each_other_stay_split() -> None:
    found = sharded(lambda x: (tf.sigmoid(x @ weights(6, 9)) * (x @ weights(6, 9))) @ weights(9, 9))
    assert [layer.by for layer in found.layers] == ["columns", "columns", "rows"]


def test_columns_that_become_rows_are_no_input_of_a_layer_by_rows() -> None:
    found = sharded(lambda x: tf.matmul(x @ weights(6, 9), weights(4, 4), transpose_a=True))
    assert [layer.by for layer in found.layers] == ["columns", "columns"]


def test_loops_of_tensorflow_1_are_refused() -> None:
    graph = tf.compat.v1.GraphDef()
    for name, giver in (("Enter", "Exit"), ("Exit", "Enter")):
        graph.node.add(name=name, op=name, input=[giver])
    with pytest.raises(CannotShard, match=r"loops of TensorFlow 1 \(Enter, Exit\); expected tf.while_loop"):
        GraphSharding(graph, lambda _: None, DEVICES, 0)
