"""Elements that are taken or set by the place of a row, and what is undone later, beside real calls.

The i-th entry of what is left of a mask, of the distinct values or of the pieces of a text is not that of row i.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tests.runtimes.tensorflow.row_proof.proving import differing, proof_of, prove, spec, traced, verdicts

_ROWS, _NUMBERS, _TEXT = spec(None, 4), spec(None), spec(None, dtype=tf.string)

Case = tuple[Callable[..., Any], Any]


def _listed(values: Any) -> Any:
    shape = tf.constant(values.shape[1:].as_list(), tf.int32)
    made = tf.raw_ops.TensorListFromTensor(tensor=values, element_shape=shape)
    return tf.raw_ops.TensorListStack(input_handle=made, element_shape=shape, element_dtype=values.dtype)


def _by_turn(take: Callable[[Any, Any], Any], entries: Any, rows: Any) -> Any:
    places = tf.range(tf.shape(rows)[0])
    return tf.map_fn(lambda place: take(entries, place), places, fn_output_signature=entries.dtype)


def _masked(x: Any) -> Any:
    """The entries above -3: mostly several for each row."""
    return tf.gather_nd(x, tf.where(x > -3.0))


def _pieces(t: Any) -> Any:
    return tf.strings.split(t).values


def _written_before_a_scatter(x: Any) -> Any:
    handle, flow = tf.raw_ops.TensorArrayV3(size=2, dtype=tf.float32, element_shape=tf.TensorShape(None))
    flow = tf.raw_ops.TensorArrayWriteV3(handle=handle, index=0, value=tf.transpose(x), flow_in=flow)
    flow = tf.raw_ops.TensorArrayScatterV3(handle=handle, indices=[1], value=x[None], flow_in=flow)
    return tf.raw_ops.TensorArrayReadV3(handle=handle, index=0, flow_in=flow, dtype=tf.float32)


def _parsed(t: Any) -> Any:
    feature = tf.io.FixedLenSequenceFeature([], tf.float32, allow_missing=True)
    return tf.pad(tf.io.parse_example(t, {"a": feature})["a"], [[0, 0], [0, 2]])[:, :2]


_NOT_OF_A_ROW: dict[str, Case] = {
    "list_of_masked": (lambda x: _listed(tf.boolean_mask(x, x[:, 0] > 0)), _ROWS),
    "list_of_distinct": (lambda x: _listed(tf.unique(x)[0]), _NUMBERS),
    "list_of_pieces": (lambda t: _listed(_pieces(t)), _TEXT),
    "masked_strided_slice": (lambda x: _by_turn(lambda y, i: y[i], _masked(x), x), _ROWS),
    "masked_slice": (lambda x: _by_turn(lambda y, i: tf.slice(y, [i], [1])[0], _masked(x), x), _ROWS),
    "masked_gather": (lambda x: _by_turn(tf.gather, _masked(x), x), _ROWS),
    "pieces_gather": (lambda t: _by_turn(tf.gather, _pieces(t), t), _TEXT),
    "array_with_elements": (_written_before_a_scatter, _ROWS),
}

_UNDONE: dict[str, Case] = {
    "turned_round_twice": (lambda x: tf.reverse(tf.reverse(x, [0]), [0]), _ROWS),
    "strides_twice": (lambda x: x[::-1][::-1], _ROWS),
    "shifted_back": (lambda x: tf.roll(tf.roll(x, 1, 0), -1, 0), _ROWS),
    "sums_taken_off": (lambda x: tf.cumsum(x, 0) - tf.cumsum(x, 0, exclusive=True), _ROWS),
    "end_behind_all": (lambda x: x[: 2**31 - 1], _ROWS),
    "parsed_and_cut": (_parsed, _TEXT),
}

_OF_A_ROW: dict[str, Case] = {
    "pieces_cut": (lambda t: tf.strings.split(t).to_tensor(shape=[None, 2]), _TEXT),
    "list": (_listed, _ROWS),
    "strided_slice": (lambda x: _by_turn(lambda y, i: y[i, 1], x, x), _ROWS),
    "slice": (lambda x: _by_turn(lambda y, i: tf.slice(y, [i, 0], [1, 1])[0, 0], x, x), _ROWS),
    "gather": (lambda x: _by_turn(lambda y, i: tf.gather(y, i)[2], x, x), _ROWS),
}


@pytest.mark.parametrize("name", _NOT_OF_A_ROW)
def test_entries_that_are_not_one_for_each_row_are_not_proven(name: str) -> None:
    function, *specs = _NOT_OF_A_ROW[name]
    assert "proven" not in verdicts(prove(function, *specs))


@pytest.mark.parametrize("name", _UNDONE)
def test_what_a_later_operation_undoes_is_unknown_not_mixing(name: str) -> None:
    function, *specs = _UNDONE[name]
    concrete = traced(function, *specs)
    assert verdicts(proof_of(concrete, specs)) == ["unknown"]
    assert not differing(concrete, specs)


@pytest.mark.parametrize("name", _OF_A_ROW)
def test_the_element_of_each_row_is_proven_and_calls_agree(name: str) -> None:
    function, *specs = _OF_A_ROW[name]
    concrete = traced(function, *specs)
    assert verdicts(proof_of(concrete, specs)) == ["proven"]
    assert not differing(concrete, specs)
