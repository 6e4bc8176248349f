"""What the proof says of tensors that misled it, beside real calls: sizes, elements, what is the same for all."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from app.runtimes.tensorflow.row_proof.abstract_values import Taint
from tests.runtimes.tensorflow.row_proof.calls_server import compared, values_of
from tests.runtimes.tensorflow.row_proof.drawing import Use
from tests.runtimes.tensorflow.row_proof.proving import prove, spec, verdicts


def _variable() -> Any:
    handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[4, 2], shared_name="by_calls")
    if tf.executing_eagerly():
        tf.raw_ops.AssignVariableOp(resource=handle, value=tf.reshape(tf.range(8.0), [4, 2]))
    return handle


def _of_batch(x: Any, u: Any) -> list[Any]:
    indices = tf.constant([0, 1, 1, 0])
    return [tf.raw_ops.ResourceGather(resource=_variable(), indices=indices, dtype=tf.float32, batch_dims=1)]


def _pooled(operation: str) -> Use:
    """The window takes two channels."""
    window = [1, 1, 1, 2]

    def use(x: Any, u: Any) -> list[Any]:
        image = tf.reshape(x[:, :8], [-1, 2, 2, 2])
        name = "value" if operation == "AvgPool" else "input"
        call = getattr(tf.raw_ops, operation)
        return tf.nest.flatten(call(**{name: image}, ksize=window, strides=window, padding="VALID"))

    return use


_MISLED: dict[str, Use] = {
    "gather_by_batch_of_a_variable": _of_batch,
    "sizes_of_space_alone": lambda x, u: [
        tf.raw_ops.Conv2DBackpropInput(
            input_sizes=[4, 4],
            filter=tf.ones([1, 1, 2, 3]),
            out_backprop=tf.ones([2, 4, 4, 3]),
            strides=[1, 1, 1, 1],
            padding="SAME",
        )
    ],
    "greatest_of_channels": _pooled("MaxPool"),
    "product_over_no_axis": lambda x, u: [tf.reduce_prod(tf.constant([2, 3]), [])],
}


@pytest.mark.parametrize("name", _MISLED)
def test_a_tensor_is_as_the_proof_says(name: str) -> None:
    found = compared(_MISLED[name])
    assert (found["calls"], found["wrong"]) == (3, [])


@pytest.mark.parametrize("operation", ["AvgPool", "MaxPoolWithArgmax"])
def test_a_window_over_channels_is_not_followed(operation: str) -> None:
    """TensorFlow takes it, and gives empty images, or channels that were left alone."""
    values = values_of(_pooled(operation))
    assert values is not None
    assert {each.verdict for each in values if isinstance(each, Taint)} == {"unknown"}


def test_what_is_scaled_by_values_of_rows_is_not_the_same_for_all() -> None:
    four = [1.0] * 4
    values = values_of(
        lambda x, u: list(
            tf.raw_ops.FusedBatchNorm(
                x=tf.ones([1, 2, 2, 4]), scale=x[:, 0], offset=four, mean=four, variance=four, is_training=False
            )
        )
    )
    assert values is not None
    assert isinstance(values[0], Taint)


@pytest.mark.parametrize("mode", ["tf_idf", "count", "multi_hot"])
def test_words_that_keras_counts_in_a_vector_of_fixed_length_are_not_said_to_mix(mode: str) -> None:
    """The greatest number of all rows is but a size, and is cut to that of the vocabulary."""
    keras = pytest.importorskip("keras")
    layer = keras.layers.TextVectorization(output_mode=mode)
    layer.adapt(tf.constant(["a b c", "a b", "a 12 7"]))
    assert verdicts(prove(layer, spec(None, dtype=tf.string))) == ["unknown"]
