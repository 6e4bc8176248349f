"""The proof by graph beside real calls: nothing that is proven differs, and plain row-wise uses are proven."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.runtimes.tensorflow.row_proof.proof import prove_rows
from tests.runtimes.tensorflow.row_proof.proving import differing, proof_of, prove, spec, traced, verdicts

_W = tf.constant(np.arange(12, dtype="float32").reshape(4, 3) / 4)
_ROWS, _TIME, _IDS = spec(None, 4), spec(None, None, 4), spec(None, None, dtype=tf.int32)
_IMAGE, _TEXT = spec(None, 6, 6, 2), spec(None, dtype=tf.string)
_KERNEL = tf.ones([3, 3, 2, 4])


def _count(x: Any) -> Any:
    return tf.shape(x)[0]


def _of_distinct(t: Any) -> Any:
    words, numbers = tf.unique(t)
    return tf.gather(tf.strings.length(words), numbers)


def _decoded_again(x: Any) -> Any:
    def read(image: Any) -> Any:
        file = tf.io.encode_png(tf.cast(100 * tf.abs(image[..., :1]), tf.uint8))
        return tf.image.resize(tf.io.decode_image(file, 1, expand_animations=False), [3, 2])

    return tf.map_fn(read, x)


Case = tuple[Callable[..., Any], Any]

_OF_A_ROW: dict[str, Case] = {
    "dense": (lambda x: tf.nn.softmax(x @ _W), _ROWS),
    "flattened_and_back": (lambda x: tf.reshape(tf.reshape(x, [-1, 4]) @ _W, [_count(x), -1, 3]), _TIME),
    "tensordot": (lambda x: tf.tensordot(x, _W, 1), _TIME),
    "attention": (lambda x: tf.nn.softmax(x @ tf.transpose(x, [0, 2, 1])) @ x, _TIME),
    "einsum": (lambda x: tf.einsum("btd,bsd->bts", x, x), _TIME),
    "transposed_and_back": (lambda x: tf.transpose(tf.sort(tf.transpose(x), axis=0)), _ROWS),
    "embedding": (lambda i: tf.gather(tf.ones([3, 2]), i) + tf.gather(tf.ones([9, 2]), tf.range(tf.shape(i)[1])), _IDS),
    "gather_by_batch": (lambda x: tf.gather(x, tf.argsort(x, axis=1), batch_dims=1), _ROWS),
    "gather_nd_own_place": (
        lambda x: tf.gather_nd(x, tf.stack([tf.range(_count(x)), tf.argmax(x, 1, tf.int32)], 1)),
        _ROWS,
    ),
    "map": (lambda x: tf.map_fn(lambda row: tf.sort(row) - tf.reduce_max(row), x), _ROWS),
    "map_over_places": (
        lambda x: tf.map_fn(lambda i: x[i] * 2, tf.range(_count(x)), fn_output_signature=tf.float32),
        _ROWS,
    ),
    "loop_in_step": (lambda x: tf.while_loop(lambda i, _: i < 4, lambda i, a: (i + 1, a * x), [0, x])[1], _ROWS),
    "branch_by_a_constant": (lambda x: tf.cond(tf.constant(True), lambda: x, lambda: tf.cumsum(x)), _ROWS),
    "convolution": (lambda x: tf.nn.relu(tf.nn.conv2d(x, _KERNEL, 1, "SAME")), _IMAGE),
    "dilated": (lambda x: tf.nn.convolution(x, _KERNEL, padding="SAME", dilations=[2, 2]), _IMAGE),
    "image_files": (_decoded_again, _IMAGE),
    "pool": (lambda x: tf.reduce_mean(tf.nn.max_pool2d(x, 2, 2, "VALID"), [1, 2]), _IMAGE),
    "distinct_and_back": (_of_distinct, _TEXT),
    "text": (lambda t: tf.strings.to_hash_bucket_fast(tf.strings.upper(t), 5), _TEXT),
    "one_hot": (lambda i: tf.reduce_sum(tf.one_hot(i, 3), 1), _IDS),
    "top": (lambda x: tf.math.top_k(x, 2)[0], _ROWS),
    "joined": (lambda x: tf.concat([x, tf.zeros([_count(x), 1])], 1), _ROWS),
    "batched_twice": (lambda x: tf.split(tf.concat([x, -x], 0), 2)[1], _ROWS),
}

_OF_ALL_ROWS: dict[str, Case] = {
    "softmax": (lambda x: tf.nn.softmax(x, axis=0), _ROWS),
    "centred": (lambda x: x - tf.reduce_mean(x, 0), _ROWS),
    "pairs": (lambda x: tf.reduce_max(x[:, None] - x[None, :], 1), _ROWS),
    "gram": (lambda x: tf.reduce_sum(x @ tf.transpose(x), 1), _ROWS),
    "the_first": (lambda x: x + x[:1], _ROWS),
    "turned_round": (lambda x: x[::-1], _ROWS),
    "shifted": (lambda x: tf.roll(x, 1, 0), _ROWS),
    "padded_and_cut": (lambda x: tf.pad(x, [[1, 0], [0, 0]])[:-1], _ROWS),
    "their_number": (lambda x: x / tf.cast(_count(x), tf.float32), _ROWS),
    "by_their_number": (lambda x: tf.cond(_count(x) > 2, lambda: x, lambda: -x), _ROWS),
    "by_a_sum": (lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x, lambda: -x), _ROWS),
    "their_place": (lambda x: x + tf.cast(tf.range(_count(x)), tf.float32)[:, None], _ROWS),
    "scan": (lambda x: tf.scan(lambda a, row: a + row, x), _ROWS),
    "map_beside_all": (lambda x: tf.map_fn(lambda row: row - tf.reduce_sum(x, 0), x), _ROWS),
    "until_all_are_large": (lambda x: tf.while_loop(lambda a: tf.reduce_any(a < 9), lambda a: (a + 1,), [x])[0], _ROWS),
    "joined_across_rows": (lambda x: tf.reduce_sum(tf.reshape(x, [2, -1, 4]), 0), _ROWS),
    "windows_over_rows": (lambda x: tf.nn.conv1d(x[None], tf.ones([3, 4, 2]), 1, "SAME")[0], _ROWS),
    "two_axes_of_a_diagonal": (lambda x: tf.raw_ops.Einsum(inputs=[x], equation="ij->iij"), _ROWS),
    "order": (lambda t: tf.unique(t)[1], _TEXT),
    "widest": (lambda t: tf.strings.split(t).to_tensor(), _TEXT),
    "in_training": (lambda x: tf.compat.v1.nn.fused_batch_norm(x, [1.0, 1.0], [0.0, 0.0])[0], _IMAGE),
    "quantized": (lambda x: tf.quantization.quantize_and_dequantize_v2(x, 0.0, 0.0, range_given=False), _ROWS),
    "drawn_by_place": (lambda x: x + tf.random.stateless_uniform(tf.shape(x), [1, 2]), _ROWS),
}


@pytest.mark.parametrize("name", _OF_A_ROW)
def test_what_is_computed_of_each_row_is_proven_and_calls_agree(name: str) -> None:
    function, *specs = _OF_A_ROW[name]
    concrete = traced(function, *specs)
    assert verdicts(proof_of(concrete, specs)) == ["proven"]
    assert not differing(concrete, specs)


@pytest.mark.parametrize("name", _OF_ALL_ROWS)
def test_what_is_computed_of_all_rows_is_not_proven(name: str) -> None:
    function, *specs = _OF_ALL_ROWS[name]
    assert "proven" not in verdicts(prove(function, *specs))


_STEPS: tuple[Callable[[Any], Any], ...] = (
    lambda x: tf.nn.relu(x) + 1, lambda x: x * tf.constant([1.0, 2.0, 0.5, 1.0]), lambda x: tf.sort(x, axis=1),
    lambda x: tf.cumsum(x, axis=1), lambda x: x[:, ::-1], lambda x: tf.transpose(tf.transpose(x)[::-1]),
    lambda x: tf.reshape(tf.reshape(x, [-1, 2]), [-1, 4]), lambda x: tf.tile(x, [1, 2])[:, 2:6],
    lambda x: tf.reshape(tf.tile(x, [2, 1]), [2, -1, 4])[1], lambda x: tf.concat([x[:, 2:], x[:, :2]], 1),
    lambda x: tf.map_fn(lambda row: row[::-1], x), lambda x: tf.where(x > 0, x, -1.0),
    lambda x: x - tf.reduce_min(x, 1, keepdims=True), lambda x: tf.gather(x, [3, 0, 1, 2], axis=1),
    lambda x: x - tf.reduce_min(x, 0), lambda x: tf.sort(x, axis=0), tf.cumsum, lambda x: x[::-1],
    lambda x: x + x[:1], lambda x: tf.reshape(tf.transpose(x), tf.shape(x)),
    lambda x: tf.gather(x, tf.zeros_like(x[:, 0], tf.int32)),
    lambda x: x + tf.cast(_count(x), tf.float32), lambda x: tf.reshape(tf.repeat(x, 2, 0), [2, -1, 4])[0],
)  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_no_random_program_that_is_proven_differs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chosen = [_STEPS[n] for n in rng.integers(0, len(_STEPS), rng.integers(1, 5))]

    def program(x: Any) -> Any:
        for step in chosen:
            x = step(x)
        return x

    concrete = traced(program, _ROWS)
    if verdicts(proof_of(concrete, [_ROWS])) == ["proven"]:
        assert not differing(concrete, [_ROWS], seed)


def test_inputs_that_are_added_row_by_row_have_equally_many_rows() -> None:
    rows = prove(lambda x, y: x + y, _ROWS, _ROWS)
    assert (rows.row_inputs, rows.unequal) == ({"i0", "i1"}, False)


def test_nodes_and_edges_need_not_have_equally_many_rows() -> None:
    edges = spec(None, 2, dtype=tf.int32)
    rows = prove(lambda n, e: n + tf.math.unsorted_segment_sum(tf.gather(n, e[:, 0]), e[:, 1], _count(n)), _ROWS, edges)
    assert rows.unequal


def test_inputs_that_never_meet_need_not_have_equally_many_rows() -> None:
    rows = prove(lambda users, items: (2.0 * users, items + 1.0), _ROWS, _ROWS)
    assert (rows.unequal, verdicts(rows)) == (True, ["proven", "proven"])


def test_an_input_that_no_output_needs_may_have_any_number_of_rows() -> None:
    assert prove(lambda x, _: 2.0 * x, _ROWS, _ROWS).unequal


def test_of_inputs_that_meet_in_an_unknown_operation_nothing_is_said() -> None:
    def unknown(x: Any, y: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(lambda x, y: x + y, [x, y], tf.float32), [None, 4])

    def in_a_loop(x: Any, y: Any) -> Any:
        return tf.while_loop(lambda _, __: True, lambda x, y: (unknown(x, y), y), (x, y), maximum_iterations=3)[0]

    for function in (unknown, lambda x, y: unknown(2.0 * x, y) + x, in_a_loop):
        rows = prove(function, _ROWS, _ROWS)
        assert (rows.unequal, verdicts(rows)) == (False, ["unknown"]), function


def test_a_scalar_is_shared_by_all_rows() -> None:
    rows = prove(lambda x, t: x / t, _ROWS, spec())
    assert (rows.shared, verdicts(rows)) == ({"i1"}, ["proven"])


def test_the_reason_names_the_operation_and_its_node() -> None:
    rows = prove(lambda x: tf.reduce_sum(x, 0, name="total"), _ROWS)
    assert rows.outputs["o0"].reason == "Sum 'total' runs over the rows, axis 0 of its input"


def test_an_axis_is_that_of_the_operations_input_also_behind_a_transposition() -> None:
    rows = prove(lambda x: tf.nn.softmax(x, 0), _ROWS)
    assert rows.outputs["o0"].reason == "Softmax 'Softmax' runs over the rows, axis 1 of its input"


def _sizes_in_a_function(x: Any) -> Any:
    named = tf.function(lambda y: tf.identity(tf.shape(y, name="sizes")), autograph=False)
    return tf.identity(named(x))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (
            lambda x: 2 * tf.unique(x[:, 0], name="words")[0],
            "it has any number of entries for a row, by Unique 'words'",
        ),
        (
            lambda x: 2 * tf.boolean_mask(x, x[:, 0] > 0.0),
            "it has any number of entries for a row, by GatherV2 'boolean_mask/GatherV2'",
        ),
        (lambda x: tf.reshape(x, [-1], "flat"), "it has several entries for a row, by Reshape 'flat'"),
        (lambda x: tf.transpose(x, name="turned"), "its rows lie along axis 1, not 0, by Transpose 'turned'"),
        (lambda x: tf.where(x > 0, name="found"), "it is made of the number or the places of rows, by Where 'found'"),
        (_sizes_in_a_function, "it is made of the number or the places of rows, by Shape 'sizes' in '<lambda>'"),
    ],
)
def test_the_reason_names_what_makes_an_output_that_has_no_row_for_each_row(function: Any, reason: str) -> None:
    assert tuple(prove(function, _ROWS).outputs["o0"]) == ("no rows", reason)


def test_what_a_graph_writes_is_unknown() -> None:
    concrete = traced(tf.abs, _ROWS)
    graph, (x,), (y,) = concrete.graph.as_graph_def(), concrete.inputs, concrete.outputs
    rows = prove_rows(graph, {"x": x.name}, {"y": y.name}, {"x": [None, 4]}, writes=["AssignVariableOp"])
    assert rows.outputs["y"].verdict == "unknown"


def test_a_graph_that_cannot_be_read_is_unknown() -> None:
    rows = prove_rows(tf.compat.v1.GraphDef(), {"x": "x:0"}, {"y": "y:0"}, {"x": [None]})
    assert rows.outputs["y"].verdict == "unknown"


def test_each_of_100_000_nodes_is_looked_at_once() -> None:
    graph = tf.compat.v1.GraphDef()
    graph.node.add(name="n0", op="Placeholder")
    for number in range(100_000):
        graph.node.add(name=f"n{number + 1}", op="Relu").input.append(f"n{number}")
    rows = prove_rows(graph, {"x": "n0:0"}, {"y": "n100000:0"}, {"x": [None, 4]})
    assert rows.outputs["y"].proven  # the walk ends after MAX_STEPS looks, 10 for each node
