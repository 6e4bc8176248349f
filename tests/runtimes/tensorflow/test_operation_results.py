"""The numbers of results are those by which TensorFlow numbers the outputs of an operation."""

import tensorflow as tf

from app.runtimes.tensorflow.operation_results import first_result


def test_results_count_by_their_definition() -> None:
    with tf.Graph().as_default():
        values, sizes = tf.nn.top_k([1.0, 2.0], 1)
    assert [first_result(values.op.node_def, name) for name in ("values", "indices")] == [
        values.value_index,
        sizes.value_index,
    ]


def test_a_list_of_results_counts_as_many_as_it_has() -> None:
    with tf.Graph().as_default():
        parsed = tf.raw_ops.ParseExampleV2(
            serialized=[b""], names=[], sparse_keys=["a", "b"], dense_keys=[], ragged_keys=[], dense_defaults=[],
            num_sparse=2, sparse_types=[tf.int64, tf.string], ragged_value_types=[], ragged_split_types=[],
            dense_shapes=[],
        )  # fmt: skip
    node = parsed.sparse_indices[0].op.node_def
    found = [first_result(node, name) for name in ("sparse_indices", "sparse_values", "sparse_shapes")]
    assert found == [
        each[0].value_index for each in (parsed.sparse_indices, parsed.sparse_values, parsed.sparse_shapes)
    ]


def test_unknown_results_and_operations_have_no_number() -> None:
    node = tf.compat.v1.NodeDef(name="sum", op="AddV2")
    assert first_result(node, "y") is None
    assert first_result(tf.compat.v1.NodeDef(name="other", op="NoSuchOperation"), "z") is None
