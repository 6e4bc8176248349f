"""Deceptions with loops, branches, lists, functions: values that are carried, walked once, or numbered by rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tests.row_corpus.deception import COLUMN, MATRIX, NUMBER, SEQUENCE, TWO, Deception


def _rows(x: Any) -> Any:
    return tf.shape(x)[0]


def _loop(
    x: Any, read: Callable[[Any, Any], Any], write: Callable[[Any, Any], Any], turns: Callable[[Any], Any] = _rows
) -> Any:
    """A loop over rows: turn i reads a row of x and writes it to a list."""
    array = tf.TensorArray(tf.float32, _rows(x), element_shape=[4], clear_after_read=False)
    array = array.unstack(tf.zeros_like(x))

    def step(i: Any, array: Any) -> Any:
        return i + 1, array.write(write(i, _rows(x)), read(x, i))

    return tf.ensure_shape(tf.while_loop(lambda i, _: i < turns(x), step, (0, array))[1].stack(), [None, 4])


def _same(i: Any, _: Any) -> Any:
    return i


def _carry(x: Any, start: Any, step: Callable[[Any, Any], Any], *, turns: Any = 3) -> Any:
    """A state goes through a loop whose body also sees x."""
    start = tf.convert_to_tensor(start)
    shapes = (tf.TensorShape([]), tf.TensorShape(None if start.shape.rank is None else [None] * start.shape.rank))
    return tf.while_loop(lambda i, _: i < turns, lambda i, state: (i + 1, step(state, x)), (0, start), shapes)[1]


def _late(x: Any) -> Any:
    """Three states: what mixes needs three turns to arrive."""

    def step(i: Any, a: Any, b: Any, c: Any) -> Any:
        return i + 1, b, c, tf.reduce_sum(x, 0)

    zero = tf.zeros([4])
    return x + tf.while_loop(lambda i, *_: i < 4, step, (0, zero, zero, zero))[1]


def _late_but_never(x: Any) -> Any:
    """The same, and what arrives is independent of rows."""

    def step(i: Any, a: Any, b: Any, c: Any) -> Any:
        return i + 1, b, c, c + 1.0

    zero = tf.zeros([4])
    return x + tf.while_loop(lambda i, *_: i < 4, step, (0, zero, zero, zero))[1]


def _exchanged(x: Any) -> Any:
    """Two states change places at each turn; one is a sum over rows."""
    state = (0, x[:, 0], tf.zeros_like(x[:, 0]) + tf.reduce_sum(x))
    return tf.while_loop(lambda i, *_: i < 2, lambda i, a, b: (i + 1, b, a), state)[1]


def _number_of_turns(x: Any) -> Any:
    """As many turns as rows: the count is a value."""
    return x + tf.cast(tf.while_loop(lambda i: i < _rows(x), lambda i: [i + 1], [0])[0], tf.float32)


def _size_by_turns(x: Any) -> Any:
    """A size that is multiplied by the number of turns, and looks like rows."""
    size = tf.while_loop(lambda i, _: i < _rows(x), lambda i, n: (i + 1, n + 4), (0, 0))[1]
    return tf.fill([size // 4], tf.cast(size, tf.float32))


def _grown(x: Any) -> Any:
    """The state is joined with x at each turn."""
    return _carry(x, x, lambda state, y: tf.concat([state, y], 0), turns=1)


def _grown_beside(x: Any) -> Any:
    return _carry(x, x, lambda state, y: tf.concat([state, y], 1), turns=2)


def _while_no_turn(x: Any) -> Any:
    """The body would mix, but it never runs."""
    return _carry(x, x, lambda state, y: state - tf.reduce_max(y, 0), turns=0)


def _rnn(x: Any, mixed: Callable[[Any], Any], *, from_time: Callable[[Any], Any]) -> Any:
    """x [rows, time, 3], time-major as Keras does it."""
    steps = from_time(x)
    outputs = tf.TensorArray(tf.float32, tf.shape(steps)[0])

    def step(t: Any, state: Any, outputs: Any) -> Any:
        state = mixed(tf.tanh(state * 0.5 + steps[t]))
        return t + 1, state, outputs.write(t, state)

    zero = tf.zeros_like(steps[0])
    return tf.while_loop(lambda t, *_: t < tf.shape(steps)[0], step, (0, zero, outputs))[2].stack()


def _major(x: Any) -> Any:
    return tf.transpose(x, [1, 0, 2])


def _two_axes(x: Any) -> Any:
    """A loop over time whose body loops over rows."""
    return tf.map_fn(lambda step: tf.map_fn(lambda row: row / (1.0 + tf.reduce_max(row)), step), _major(x))


def _list_of_rows(x: Any, element: Callable[[Any], Any]) -> Any:
    """A TensorList of a row each; `element`: which one is read for row i."""
    handle = tf.raw_ops.TensorListFromTensor(tensor=x, element_shape=tf.constant([4]))

    def one(i: Any) -> Any:
        return tf.raw_ops.TensorListGetItem(
            input_handle=handle, index=element(i), element_shape=tf.constant([4]), element_dtype=tf.float32
        )

    return tf.map_fn(one, tf.range(_rows(x)), fn_output_signature=tf.TensorSpec([4], tf.float32))


def _list_reserved(x: Any, place: Callable[[Any, Any], Any], keep: Callable[[Any, Any], Any]) -> Any:
    """Rows are written to a reserved list by hand."""
    handle = tf.raw_ops.TensorListReserve(
        element_shape=tf.constant([4]), num_elements=_rows(x), element_dtype=tf.float32
    )

    def step(i: Any, handle: Any) -> Any:
        at = place(i, _rows(x))
        return i + 1, tf.raw_ops.TensorListSetItem(input_handle=handle, index=at, item=keep(x, i))

    handle = tf.while_loop(lambda i, _: i < _rows(x), step, (0, handle))[1]
    stacked = tf.raw_ops.TensorListStack(input_handle=handle, element_shape=tf.constant([4]), element_dtype=tf.float32)
    return tf.ensure_shape(stacked, [None, 4])


def _list_pushed(x: Any, *, popped: bool) -> Any:
    """Columns or rows are pushed; `popped`: they come back in the other order."""
    handle = tf.raw_ops.EmptyTensorList(
        element_shape=tf.constant([4]), max_num_elements=tf.constant(-1), element_dtype=tf.float32
    )

    def step(i: Any, handle: Any) -> Any:
        at = _rows(x) - 1 - i if popped else i
        return i + 1, tf.raw_ops.TensorListPushBack(input_handle=handle, tensor=x[at])

    handle = tf.while_loop(lambda i, _: i < _rows(x), step, (0, handle))[1]
    return tf.raw_ops.TensorListStack(input_handle=handle, element_shape=tf.constant([4]), element_dtype=tf.float32)


def _list_joined(x: Any) -> Any:
    handle = tf.raw_ops.TensorListFromTensor(tensor=x[:, None], element_shape=tf.constant([1, 4]))
    lead = tf.constant([], tf.int64)
    joined = tf.raw_ops.TensorListConcatV2(
        input_handle=handle, element_shape=tf.constant([1, 4]), leading_dims=lead, element_dtype=tf.float32
    )
    return joined.tensor


@tf.function
def _centred(x: Any) -> Any:
    return x - tf.reduce_mean(x, 0, keepdims=True)


@tf.function
def _identity_and_mean(x: Any) -> Any:
    return x, tf.reduce_mean(x, 0)


def _branch(condition: Any, one: Callable[[], Any], other: Callable[[], Any]) -> Any:
    return tf.cond(condition, one, other)


def _mapped(x: Any, one: Callable[[Any], Any]) -> Any:
    return tf.map_fn(one, x)


_READ: Mapping[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "own_place": (lambda x, i: x[i], _same),
    "read_of_the_one_before": (lambda x, i: x[tf.maximum(i - 1, 0)], _same),
    "read_of_the_one_behind": (lambda x, i: x[tf.minimum(i + 1, _rows(x) - 1)], _same),
    "read_of_a_constant": (lambda x, i: x[0], _same),
    "read_by_a_slice": (lambda x, i: tf.reduce_sum(x[i : i + 1], 0), _same),
    "read_of_two_by_a_slice": (lambda x, i: tf.reduce_sum(x[i : i + 2], 0), _same),
    "read_of_all_before": (lambda x, i: tf.reduce_sum(x[: i + 1], 0), _same),
    "read_by_gather": (tf.gather, _same),
    "read_by_slice_operation": (lambda x, i: tf.slice(x, [i, 0], [1, 4])[0], _same),
    "read_from_the_end": (lambda x, i: x[-i - 1], _same),
    "its_number_is_a_value": (lambda x, i: x[i] + tf.cast(i, tf.float32), _same),
    "written_backwards": (lambda x, i: x[i], lambda i, rows: rows - 1 - i),
    "written_one_behind": (lambda x, i: x[i], lambda i, rows: (i + 1) % rows),
    "read_and_written_backwards": (lambda x, i: x[_rows(x) - 1 - i], lambda i, rows: rows - 1 - i),
    "written_to_half": (lambda x, i: x[i], lambda i, _: i // 2),
}

CASES: Sequence[Deception] = (
    *[
        MATRIX(f"loop_over_rows_{name}", lambda x, read=read, write=write: _loop(x, read, write))
        for name, (read, write) in _READ.items()
    ],
    MATRIX("loop_over_all_rows_but_one", lambda x: _loop(x, lambda x, i: x[i], _same, lambda x: _rows(x) - 1)),
    MATRIX("loop_over_one_row", lambda x: _loop(x, lambda x, i: x[i], _same, lambda x: tf.constant(1))),
    *MATRIX.all(
        late_arrival=_late,
        late_arrival_of_a_constant=_late_but_never,
        exchanged_states=_exchanged,
        number_of_turns=_number_of_turns,
        size_by_turns=_size_by_turns,
        grown_by_rows=_grown,
        grown_by_columns=_grown_beside,
        a_body_that_never_runs=_while_no_turn,
        uniform_state_becomes_a_sum=lambda x: x + _carry(x, tf.zeros([4]), lambda s, y: s + tf.reduce_sum(y, 0)),
        uniform_state_stays=lambda x: x + _carry(x, tf.zeros([4]), lambda s, _: s + 1.0),
        state_of_rows=lambda x: _carry(x, x, lambda s, y: 0.5 * s + y),
        state_of_rows_centred_in_the_loop=lambda x: _carry(x, x, lambda s, _: s - tf.reduce_mean(s, 0)),
        state_of_rows_turned=lambda x: _carry(x, x, lambda s, _: tf.reverse(s, [0]), turns=2),
        state_of_rows_turned_oddly=lambda x: _carry(x, x, lambda s, _: tf.reverse(s, [0]), turns=3),
        state_transposed_at_each_turn=lambda x: _carry(x, x @ tf.transpose(x), lambda s, _: tf.transpose(s)),
        state_transposed_evenly=lambda x: _carry(x, x, lambda s, _: tf.transpose(s), turns=2),
        state_is_a_scalar=lambda x: x * _carry(x, 1.0, lambda s, y: s + tf.reduce_max(y)),
        turns_by_value=lambda x: _carry(x, x, lambda s, y: s + y, turns=tf.cast(tf.abs(x[0, 0]), tf.int32)),
        turns_by_rows=lambda x: _carry(x, x, lambda s, y: s + y, turns=_rows(x)),
        turns_by_the_width=lambda x: _carry(x, x, lambda s, y: s + y, turns=tf.shape(x)[1]),
        until_all_done=lambda x: tf.while_loop(lambda s: tf.reduce_any(s < 9.0), lambda s: [s + tf.ones_like(s)], [x])[
            0
        ],
        until_all_done_and_done_ones_stay=lambda x: tf.while_loop(
            lambda s: tf.reduce_any(s < 9.0), lambda s: [tf.where(s < 9.0, s + 1.0, s)], [x]
        )[0],
        until_all_done_and_the_wrong_ones_stay=lambda x: tf.while_loop(
            lambda s: tf.reduce_any(s < 9.0), lambda s: [tf.where(s < 8.0, s + 1.0, s + 0.5)], [x]
        )[0],
        until_any_done=lambda x: tf.while_loop(lambda s: tf.reduce_all(s < 9.0), lambda s: [s + 1.0], [x])[0],
        at_most_three_turns_until_all_done=lambda x: tf.while_loop(
            lambda s: tf.reduce_any(s < 9.0), lambda s: [s + 1.0], [x], maximum_iterations=3
        )[0],
        list_of_own_rows=lambda x: _list_of_rows(x, lambda i: i),
        list_shifted_by_one=lambda x: _list_of_rows(x, lambda i: tf.maximum(i - 1, 0)),
        list_by_a_constant=lambda x: _list_of_rows(x, lambda i: i * 0),
        list_by_twice_the_half=lambda x: _list_of_rows(x, lambda i: i // 2 * 2),
        list_reserved_own_place=lambda x: _list_reserved(x, _same, lambda x, i: x[i]),
        list_reserved_backwards=lambda x: _list_reserved(x, lambda i, rows: rows - 1 - i, lambda x, i: x[i]),
        list_reserved_of_the_first=lambda x: _list_reserved(x, _same, lambda x, i: x[0]),
        list_reserved_sum_before=lambda x: _list_reserved(x, _same, lambda x, i: tf.reduce_sum(x[: i + 1], 0)),
        list_pushed=lambda x: _list_pushed(x, popped=False),
        list_pushed_backwards=lambda x: _list_pushed(x, popped=True),
        list_joined=_list_joined,
        called_that_centres=_centred,
        called_twice_for_one_of_two=lambda x: _identity_and_mean(x)[0],
        called_twice_for_the_other=lambda x: x - _identity_and_mean(x)[1],
        called_on_the_transposed=lambda x: tf.transpose(_centred(tf.transpose(x))),
        called_on_each_row=lambda x: tf.map_fn(lambda row: _centred(row[None])[0], x),
        branch_by_a_sum=lambda x: _branch(tf.reduce_sum(x) > 0.0, lambda: x, lambda: -x),
        branch_by_the_first=lambda x: _branch(x[0, 0] > 0.0, lambda: x, lambda: -x),
        branch_by_rows=lambda x: _branch(_rows(x) > 1, lambda: x, lambda: -x),
        branch_by_width=lambda x: _branch(tf.shape(x)[1] > 1, lambda: x, lambda: tf.reverse(x, [0])),
        branch_that_gives_the_same=lambda x: _branch(tf.reduce_sum(x) > 0.0, lambda: x * 2.0, lambda: x + x),
        branch_one_side_mixes=lambda x: _branch(tf.shape(x)[1] > 5, lambda: x, lambda: _centred(x)),
        branch_the_other_side_mixes=lambda x: _branch(tf.shape(x)[1] > 5, lambda: _centred(x), lambda: x),
        mapped_row=lambda x: _mapped(x, tf.sort),
        mapped_with_a_sum_of_all=lambda x: _mapped(x, lambda row: row + tf.reduce_sum(x)),
        mapped_with_the_row_count=lambda x: _mapped(x, lambda row: row * tf.cast(_rows(x), tf.float32)),
        mapped_over_columns=lambda x: tf.transpose(_mapped(tf.transpose(x), lambda column: column * 2.0)),
        mapped_over_columns_sorted=lambda x: tf.transpose(_mapped(tf.transpose(x), tf.sort)),
        vectorised=lambda x: tf.vectorized_map(lambda row: row - tf.reduce_max(row), x),
        vectorised_over_columns=lambda x: tf.transpose(
            tf.vectorized_map(lambda column: column - tf.reduce_max(column), tf.transpose(x))
        ),
        scanned=lambda x: tf.scan(lambda total, row: total + row, x),
        scanned_over_columns=lambda x: tf.transpose(tf.scan(lambda total, each: total + each, tf.transpose(x))),
        folded=lambda x: x + tf.foldl(lambda total, row: total + row, x),
        folded_over_columns=lambda x: tf.foldl(lambda total, each: total + each, tf.transpose(x)),
    ),
    *SEQUENCE.all(
        rnn=lambda x: _major(_rnn(x, lambda s: s, from_time=_major)),
        rnn_not_put_back=lambda x: _rnn(x, lambda s: s, from_time=_major),
        rnn_over_rows=lambda x: _rnn(x, lambda s: s, from_time=lambda x: x),
        rnn_centred=lambda x: _major(_rnn(x, lambda s: s - tf.reduce_mean(s, 0), from_time=_major)),
        rnn_centred_over_columns=lambda x: _major(
            _rnn(x, lambda s: s - tf.reduce_mean(s, 1)[:, None], from_time=_major)
        ),
        rnn_turned=lambda x: _major(_rnn(tf.reverse(x, [1]), lambda s: s, from_time=_major)),
        rnn_turned_rows=lambda x: _major(_rnn(tf.reverse(x, [0]), lambda s: s, from_time=_major)),
        loop_in_a_loop=lambda x: _major(_two_axes(x)),
        attention_over_time=lambda x: tf.nn.softmax(tf.matmul(x, x, transpose_b=True)) @ x,
        attention_over_rows=lambda x: _major(
            tf.nn.softmax(tf.matmul(_major(x), _major(x), transpose_b=True)) @ _major(x)
        ),
        length_as_a_value=lambda x: x * tf.cast(tf.shape(x)[1], tf.float32),
    ),
    *COLUMN.all(
        loop_of_a_vector=lambda x: tf.map_fn(lambda each: each * 2.0, x),
        loop_of_a_vector_with_the_largest=lambda x: tf.map_fn(lambda each: each - tf.reduce_max(x), x),
    ),
    *NUMBER.all(
        turns_of_each_row=lambda x: tf.map_fn(
            lambda n: tf.while_loop(lambda i, _: i < n, lambda i, s: (i + 1, s + i), (0, 0))[1], x
        ),
        turns_of_the_largest=lambda x: tf.while_loop(
            lambda i, _: i < tf.reduce_max(x), lambda i, s: (i + 1, s + 1), (0, tf.zeros_like(x))
        )[1],
        turns_of_the_largest_masked=lambda x: tf.while_loop(
            lambda i, _: i < tf.reduce_max(x), lambda i, s: (i + 1, s + tf.cast(i < x, tf.int32)), (0, tf.zeros_like(x))
        )[1],
    ),
    *TWO.all(
        loop_reads_one_by_the_count_of_the_other=lambda a, b: tf.map_fn(
            lambda i: a[i] + b[i], tf.range(_rows(b)), tf.float32
        ),
        loop_pairs_with_the_one_behind=lambda a, b: tf.map_fn(
            lambda i: a[i] + b[tf.minimum(i + 1, _rows(b) - 1)], tf.range(_rows(a)), tf.float32
        ),
    ),
)
