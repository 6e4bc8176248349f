"""Deceptions made by hand: reshapes of unknown widths, sizes as values, gathers, segments, sparse and ragged rows ...,
and all deceptions together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tests.row_corpus import deceptions_by_axis, deceptions_in_loops
from tests.row_corpus.deception import (
    ANY,
    COLUMN,
    CUBE,
    IMAGE,
    MATRIX,
    NUMBER,
    NUMBERS,
    OPEN,
    SEQUENCE,
    TEXT,
    TWO,
    Deception,
)


def _rows(x: Any) -> Any:
    return tf.shape(x)[0]


_WHOLE = np.arange(3, 43, dtype=np.int32)


def _count(x: Any) -> Any:
    return tf.cast(_rows(x), tf.float32)


def _table() -> Mapping[str, Any]:
    return {"table": tf.Variable(np.arange(20, dtype=np.float32).reshape(5, 4))}


def _words() -> Mapping[str, Any]:
    pairs = tf.lookup.KeyValueTensorInitializer([b"a", b"bb", b"e f g"], [1, 2, 3], value_dtype=tf.int64)
    return {"table": tf.lookup.StaticHashTable(pairs, -1)}


def _lie(x: Any, *shape: int | None) -> Any:
    """A tensor whose static shape is not true."""
    told = tf.identity(x)
    told.set_shape(shape)
    return told


def _sparse(x: Any, *, filled: bool) -> Any:
    """Identifiers of x [rows, 3] that are positive, as a sparse tensor."""
    places = tf.where(x > 0)
    ids = tf.SparseTensor(places, tf.gather_nd(x, places), tf.shape(x, tf.int64))
    if not filled:
        return ids
    return tf.sparse.fill_empty_rows(ids, 0)[0]


def _ragged(x: Any) -> Any:
    """x [rows] numbers as lists of so many of 7."""
    return tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(x)], 7), x)


def _side(x: Any) -> Any:
    return tf.cast(x[:, 0] > 0.0, tf.int32)


def _stitched(x: Any, low: Any, high: Any) -> Any:
    return tf.dynamic_stitch(tf.dynamic_partition(tf.range(_rows(x)), _side(x), 2), [low, high])


def _partitions(x: Any) -> Any:
    return tf.dynamic_partition(x, _side(x), 2)


def _quantised(x: Any) -> Any:
    return tf.quantization.quantize_and_dequantize_v2(x * 1.3, -4.0, 4.0, range_given=True)


_MATRIX = MATRIX.all(
    # Reshapes.
    reshaped_and_back=lambda x: tf.reshape(tf.reshape(x, [-1]), [-1, 4]),
    reshaped_to_another_width=lambda x: tf.reshape(x, [-1, 2]),
    reshaped_summed_and_back=lambda x: tf.reduce_sum(tf.reshape(tf.reshape(x, [-1]), [-1, 4]), 1),
    reshaped_to_columns=lambda x: tf.transpose(tf.reshape(x, [4, -1])),
    reshaped_by_the_count=lambda x: tf.reshape(x, [4, _rows(x)]),
    reshaped_by_the_count_and_back=lambda x: tf.reshape(tf.reshape(x, [4, _rows(x)]) * 2.0, [-1, 4]),
    reshaped_by_the_count_sorted_and_back=lambda x: tf.reshape(tf.sort(tf.reshape(x, [4, _rows(x)])), [-1, 4]),
    reshaped_to_one=lambda x: tf.reshape(tf.nn.softmax(tf.reshape(x, [1, -1])), [-1, 4]),
    reshaped_to_rows_and_a_block=lambda x: tf.reshape(tf.nn.softmax(tf.reshape(x, [-1, 2, 2])), [-1, 4]),
    reshaped_across=lambda x: tf.reshape(tf.nn.softmax(tf.reshape(x, [2, -1, 2]), 0), [-1, 4]),
    reshaped_with_a_transpose_between=lambda x: tf.reshape(tf.transpose(tf.reshape(x, [-1, 2, 2]), [0, 2, 1]), [-1, 4]),
    transposed_then_reshaped=lambda x: tf.reshape(tf.transpose(x), [-1, 4]),
    transposed_twice=lambda x: tf.transpose(tf.transpose(x) + 1.0),
    transposed_by_a_tensor=lambda x: tf.transpose(x, tf.argsort(tf.constant([3, 1]))),
    transposed_by_a_vector_of_the_size=lambda x: tf.transpose(x, [1 - tf.shape(x)[1] // 4, tf.shape(x)[1] // 4]),
    expanded_and_squeezed=lambda x: tf.squeeze(tf.expand_dims(x, 0), 0),
    squeezed_without_an_axis=lambda x: tf.squeeze(x[:, :1]),
    expanded_softmax=lambda x: tf.nn.softmax(tf.expand_dims(x, -1), 0)[:, :, 0],
    flattened=lambda x: tf.reshape(x, [-1]),
    # Sizes as values, sizes from sizes.
    count_as_a_value=lambda x: x * _count(x),
    constant_cut_from_the_count=lambda x: x * tf.cast(tf.slice(_WHOLE, [_rows(x)], [1]), tf.float32),
    constant_cut_to_the_count=lambda x: x * tf.cast(tf.reduce_sum(tf.slice(_WHOLE, [0], [_rows(x)])), tf.float32),
    constant_cut_by_the_count=lambda x: x * tf.cast(tf.reduce_sum(tf.slice(_WHOLE, [1], [_rows(x)])), tf.float32),
    constant_table_cut_by_the_count=lambda x: x * tf.reduce_sum(tf.slice(tf.range(40.0), [1], [_rows(x)])),
    many_counts_as_a_value=lambda x: x * tf.cast(tf.reduce_sum(tf.stack([_rows(x)] * 65)), tf.float32),
    size_as_a_value=lambda x: x + tf.cast(tf.size(x), tf.float32),
    size_over_count=lambda x: x + tf.cast(tf.size(x) // _rows(x), tf.float32),
    count_less_itself=lambda x: x + tf.cast(_rows(x) - _rows(x), tf.float32),
    count_over_itself=lambda x: x * _count(x) / _count(x),
    sum_over_count=lambda x: x - tf.reduce_sum(x, 0) / _count(x),
    count_by_ones=lambda x: x * tf.reduce_sum(tf.ones_like(x[:, 0])),
    count_by_the_last_of_a_range=lambda x: x + tf.cast(tf.range(_rows(x))[-1], tf.float32),
    count_by_where=lambda x: x + tf.cast(tf.shape(tf.where(x[:, 0] > -99.0))[0], tf.float32),
    width_by_shape=lambda x: x * tf.cast(tf.shape(x)[1], tf.float32),
    width_by_shape_from_behind=lambda x: x * tf.cast(tf.shape(x)[-1], tf.float32),
    count_by_shape_from_behind=lambda x: x * tf.cast(tf.shape(x)[-2], tf.float32),
    rank_as_a_value=lambda x: x * tf.cast(tf.rank(x), tf.float32),
    product_of_the_shape=lambda x: x / tf.cast(tf.reduce_prod(tf.shape(x)[1:]), tf.float32),
    product_of_the_whole_shape=lambda x: x / tf.cast(tf.reduce_prod(tf.shape(x)), tf.float32),
    shape_as_a_value=lambda x: x[:, :2] + tf.cast(tf.shape(x), tf.float32),
    shape_out=lambda x: {"y": x, "shape": tf.shape(x)},
    filled_by_the_count=lambda x: tf.fill([_rows(x), 2], 3.0),
    filled_by_one_more=lambda x: tf.fill([_rows(x) + 1, 2], 3.0),
    filled_by_twice_the_count=lambda x: tf.fill([2 * _rows(x), 2], 3.0),
    filled_by_the_count_and_one=lambda x: tf.fill([tf.maximum(_rows(x), 3), 2], 3.0),
    filled_crosswise=lambda x: tf.fill([2, _rows(x)], 3.0),
    filled_square=lambda x: tf.fill([_rows(x), _rows(x)], 3.0),
    broadcast_to_rows=lambda x: tf.broadcast_to(tf.constant([1.0, 2.0]), [_rows(x), 2]),
    broadcast_of_the_first=lambda x: tf.broadcast_to(x[0], tf.shape(x)),
    broadcast_of_a_column=lambda x: tf.broadcast_to(x[:, :1], tf.shape(x)),
    tiled=lambda x: tf.tile(x, [1, 2]),
    tiled_rows=lambda x: tf.tile(x, [2, 1]),
    tiled_by_the_count=lambda x: tf.tile(x[:1], [_rows(x), 1]),
    repeated_by_the_count=lambda x: tf.repeat(x[:1], _rows(x), 0),
    repeated_constant=lambda x: tf.repeat(tf.constant([[1.0, 2.0]]), _rows(x), 0),
    range_of_rows=lambda x: x + tf.cast(tf.range(_rows(x)), tf.float32)[:, None],
    range_of_columns=lambda x: x + tf.cast(tf.range(tf.shape(x)[1]), tf.float32),
    range_that_starts_at_the_count=lambda x: x + tf.cast(tf.range(_rows(x), _rows(x) + 4), tf.float32),
    range_gathered=lambda x: tf.gather(x, tf.range(_rows(x))),
    range_backwards_gathered=lambda x: tf.gather(x, tf.range(_rows(x) - 1, -1, -1)),
    range_twice_backwards=lambda x: tf.gather(x, tf.reverse(tf.range(_rows(x) - 1, -1, -1), [0])),
    range_by_two=lambda x: tf.gather(x, tf.range(0, _rows(x), 2)),
    linspace_of_rows=lambda x: x + tf.linspace(0.0, 1.0, _rows(x))[:, None],
    identity_matrix=lambda x: tf.eye(_rows(x)) @ x,
    identity_matrix_out=lambda x: tf.eye(_rows(x)),
    identity_of_columns=lambda x: x @ tf.eye(tf.shape(x)[1]),
    # Slices, gathers, masks.
    slice_of_all=lambda x: x[:],
    slice_from_one=lambda x: x[1:],
    slice_of_all_but_the_last=lambda x: x[:-1],
    slice_up_to_three=lambda x: x[:3],
    slice_up_to_the_count=lambda x: x[: _rows(x)],
    slice_by_minus_one=lambda x: x[::-1],
    slice_by_two=lambda x: x[::2],
    slice_of_columns=lambda x: x[..., 1:3],
    slice_with_a_new_axis=lambda x: x[None, :, 1] * 1.0,
    slice_with_a_new_axis_behind=lambda x: x[:, None, 1],
    slice_from_the_count_less_itself=lambda x: x[_rows(x) - _rows(x) :],
    gather_of_own_column=lambda x: tf.gather(x, [3, 0], axis=1),
    gather_of_rows_by_value=lambda x: tf.gather(x, _side(x) * (_rows(x) - 1)),
    gather_by_own_place=lambda x: tf.gather(x, tf.argmax(x, 1), axis=1, batch_dims=1),
    gather_by_own_place_without_batch=lambda x: tf.gather(x, tf.argmax(x, 1), axis=1),
    gather_nd_own=lambda x: tf.gather_nd(x, tf.stack([tf.range(_rows(x)), _side(x)], 1)),
    gather_nd_crossed=lambda x: tf.gather_nd(x, tf.stack([_side(x) * 0, tf.range(_rows(x)) % 4], 1)),
    gather_nd_shifted=lambda x: tf.gather_nd(x, tf.stack([tf.range(_rows(x)) // 2, _side(x)], 1)),
    gather_nd_batch=lambda x: tf.gather_nd(x, _side(x)[:, None], batch_dims=1),
    where_places=lambda x: tf.where(x > 0.0),
    where_gathered=lambda x: tf.gather_nd(x, tf.where(x > 0.0)),
    masked=lambda x: tf.boolean_mask(x, x[:, 0] > 0.0),
    masked_columns=lambda x: tf.boolean_mask(x, [True, False, True, False], axis=1),
    masked_and_filled=lambda x: tf.scatter_nd(
        tf.where(x[:, 0] > 0.0), tf.boolean_mask(x, x[:, 0] > 0.0), tf.shape(x, tf.int64)
    ),
    masked_and_summed=lambda x: x + tf.reduce_sum(tf.boolean_mask(x, x[:, 0] > 0.0), 0),
    padded_columns=lambda x: tf.pad(x, [[0, 0], [1, 1]]),
    padded_rows=lambda x: tf.pad(x, [[1, 1], [0, 0]]),
    padded_rows_and_cut=lambda x: tf.pad(x, [[1, 1], [0, 0]])[1:-1],
    padded_rows_and_cut_elsewhere=lambda x: tf.pad(x, [[1, 1], [0, 0]])[:-2],
    mirrored_columns=lambda x: tf.pad(x, [[0, 0], [1, 1]], "REFLECT"),
    mirrored_rows=lambda x: tf.pad(x, [[1, 1], [0, 0]], "SYMMETRIC"),
    joined_with_itself=lambda x: tf.concat([x, x], 0),
    joined_with_itself_beside=lambda x: tf.concat([x, x], 1),
    joined_and_cut=lambda x: tf.concat([x, x * 2.0], 0)[: _rows(x)],
    joined_and_cut_behind=lambda x: tf.concat([x, x * 2.0], 0)[_rows(x) :],
    joined_with_a_constant_row=lambda x: tf.concat([tf.zeros([1, 4]), x], 0)[1:],
    joined_with_a_constant_row_shifted=lambda x: tf.concat([tf.zeros([1, 4]), x], 0)[:-1],
    stacked_and_summed=lambda x: tf.reduce_sum(tf.stack([x, 2.0 * x]), 0),
    stacked_and_reshaped=lambda x: tf.reshape(tf.stack([x, 2.0 * x], 1), [-1, 4])[::2],
    stacked_in_front_and_reshaped=lambda x: tf.reshape(tf.stack([x, 2.0 * x]), [-1, 4])[::2],
    unstacked_columns=lambda x: tf.add_n(tf.unstack(x, axis=1)),
    split_columns=lambda x: tf.concat(tf.split(x, 2, 1)[::-1], 1),
    split_front=lambda x: tf.split(tf.concat([x, -x], 0), 2, 0)[1],
    split_front_by_the_count=lambda x: tf.split(tf.concat([x, -x], 0), [_rows(x), _rows(x)], 0, num=2)[0],
    # Segments, scatters, partitions.
    segments_of_own_place=lambda x: tf.math.segment_sum(x, tf.range(_rows(x))),
    segments_of_all=lambda x: tf.math.segment_sum(x, tf.zeros_like(_side(x))),
    segments_of_pairs=lambda x: tf.math.segment_sum(x, tf.range(_rows(x)) // 2),
    unsorted_segments_own=lambda x: tf.math.unsorted_segment_sum(x, tf.range(_rows(x)), _rows(x)),
    unsorted_segments_own_backwards=lambda x: tf.math.unsorted_segment_sum(
        x, _rows(x) - 1 - tf.range(_rows(x)), _rows(x)
    ),
    unsorted_segments_by_value=lambda x: tf.gather(tf.math.unsorted_segment_sum(x, _side(x), 2), _side(x)),
    unsorted_segments_own_of_a_block=lambda x: tf.math.unsorted_segment_sum(
        tf.reshape(x, [-1]), tf.repeat(tf.range(_rows(x)), 4), _rows(x)
    ),
    unsorted_segments_of_a_wrong_block=lambda x: tf.math.unsorted_segment_sum(
        tf.reshape(x, [-1]), tf.tile(tf.range(_rows(x)), [4]), _rows(x)
    ),
    unsorted_segments_more_than_rows=lambda x: tf.math.unsorted_segment_sum(x, tf.range(_rows(x)), _rows(x) + 1),
    scatter_own=lambda x: tf.scatter_nd(tf.range(_rows(x))[:, None], x, tf.shape(x)),
    scatter_shifted=lambda x: tf.scatter_nd((tf.range(_rows(x))[:, None] + 1) % _rows(x), x, tf.shape(x)),
    scatter_by_value=lambda x: tf.scatter_nd(_side(x)[:, None], x, [2, 4]),
    scatter_added_own=lambda x: tf.tensor_scatter_nd_add(x, tf.range(_rows(x))[:, None], x),
    scatter_added_to_the_first=lambda x: tf.tensor_scatter_nd_add(x, [[0]], tf.ones([1, 4])),
    scatter_updated_column=lambda x: tf.tensor_scatter_nd_update(
        x, tf.stack([tf.range(_rows(x)), _side(x)], 1), tf.zeros([_rows(x)])
    ),
    partitioned_and_stitched=lambda x: _stitched(x, _partitions(x)[0] * 2.0, _partitions(x)[1]),
    partitioned_swapped=lambda x: tf.concat(_partitions(x)[::-1], 0),
    partitioned_centred=lambda x: _stitched(
        x, _partitions(x)[0] - tf.reduce_sum(_partitions(x)[0], 0), _partitions(x)[1]
    ),
    partitioned_counted=lambda x: _stitched(x, _partitions(x)[0] * _count(_partitions(x)[0]), _partitions(x)[1]),
    stitched_by_a_wrong_place=lambda x: tf.dynamic_stitch([tf.reverse(tf.range(_rows(x)), [0])], [x]),
    # Matrices.
    gram=lambda x: tf.matmul(x, x, transpose_b=True),
    gram_of_columns=lambda x: x @ tf.matmul(x, x, transpose_a=True),
    gram_diagonal=lambda x: tf.linalg.diag_part(tf.matmul(x, x, transpose_b=True)),
    diagonal=tf.linalg.diag,
    diagonal_of_rows=lambda x: tf.linalg.diag(x[:, 0]) @ x,
    band=lambda x: tf.linalg.band_part(x, 0, -1),
    band_of_each=lambda x: tf.linalg.band_part(tf.matmul(x[:, :, None], x[:, None]), 0, -1),
    trace=lambda x: x + tf.linalg.trace(tf.matmul(x, x, transpose_b=True)),
    constant_times_rows=lambda x: tf.transpose(tf.constant([[1.0, 2.0, 0.0, 1.0]]) @ tf.transpose(x)),
    einsum_own=lambda x: tf.einsum("bi,bi->b", x, x),
    einsum_outer=lambda x: tf.einsum("bi,bj->bij", x, x),
    einsum_of_all=lambda x: tf.einsum("bi,cj->bij", x, x),
    einsum_crossed=lambda x: tf.einsum("bi,ci->bc", x, x),
    einsum_summed=lambda x: tf.einsum("bi,bj->ij", x, x),
    einsum_put_back=lambda x: tf.einsum("ib->bi", tf.einsum("bi->ib", x)),
    einsum_not_put_back=lambda x: tf.einsum("bi->ib", x),
    einsum_dots=lambda x: tf.einsum("...i,ij->...j", x, tf.ones([4, 2])),
    tensordot_columns=lambda x: tf.tensordot(x, tf.ones([4, 2]), 1),
    tensordot_rows=lambda x: tf.tensordot(tf.transpose(x), x, 1),
    outer_by_tensordot=lambda x: tf.tensordot(x[:, 0], x[:, 1], 0),
    determinant_of_all=lambda x: x * tf.linalg.det(tf.matmul(x, x, transpose_a=True) + 9.0 * tf.eye(4)),
    cross_product=lambda x: tf.linalg.cross(x[:, :3], x[:, 1:]),
    bias=lambda x: tf.nn.bias_add(x, [1.0, 2.0, 3.0, 4.0]),
    # Ranges of the whole tensor, draws, clips.
    quantised_with_a_given_range=_quantised,
    quantised_by_its_range=lambda x: tf.quantization.quantize_and_dequantize_v2(x * 1.3, 0.0, 0.0, range_given=False),
    fake_quantised=lambda x: tf.quantization.fake_quant_with_min_max_args(x, -4, 4),
    fake_quantised_by_extremes=lambda x: tf.quantization.fake_quant_with_min_max_vars(
        x * 1.3, tf.reduce_min(x), tf.reduce_max(x)
    ),
    drawn_for_all=lambda x: x + tf.random.stateless_normal([4], [1, 2]),
    drawn_for_each=lambda x: x + tf.random.stateless_normal(tf.shape(x), [1, 2]),
    drawn_crosswise=lambda x: x + tf.transpose(tf.random.stateless_normal([4, _rows(x)], [1, 2])),
    clipped=lambda x: tf.clip_by_value(x, -1.0, 1.0),
    clipped_by_the_largest=lambda x: tf.clip_by_value(x, -1.0, tf.reduce_max(x) / 2.0),
    clipped_by_a_norm=lambda x: tf.clip_by_norm(x, 3.0),
    clipped_by_own_norm=lambda x: tf.clip_by_norm(x, 3.0, 1),
    best_two=lambda x: tf.math.top_k(x, 2).indices,
    best_two_of_rows=lambda x: tf.transpose(tf.math.top_k(tf.transpose(x), 1).values),
    n_th=lambda x: tf.math.reduce_min(tf.math.top_k(x, 2).values, 1),
    in_the_top=lambda x: tf.math.in_top_k(_side(x), x, 2),
    in_the_top_of_columns=lambda x: tf.math.in_top_k([0, 0, 0, 0], tf.transpose(x), 1),
    histogram=lambda x: x + tf.cast(tf.histogram_fixed_width(x, [-4.0, 4.0], 4), tf.float32),
    bucketised=lambda x: tf.raw_ops.Bucketize(input=x, boundaries=[-1.0, 0.0, 1.0]),
    searched=lambda x: tf.searchsorted(tf.constant([-1.0, 0.0, 1.0]), x[:, 0]),
    searched_each=lambda x: tf.searchsorted(tf.sort(x), x),
    searched_among_rows=lambda x: tf.searchsorted(tf.sort(x[:, 0]), x[:, 0]),
    checked=lambda x: tf.debugging.check_numerics(x, "x"),
    zeroed_sum=lambda x: x + 0.0 * tf.reduce_sum(x),
    stopped_sum=lambda x: x + tf.stop_gradient(tf.reduce_sum(x)),
    unused_sum=lambda x: (tf.reduce_sum(x), x * 2.0)[1],
    control_only=lambda x: _after([tf.reduce_sum(x)], x),
    printed=lambda x: _after([tf.debugging.Assert(tf.reduce_all(x < 99.0), [x])], x),
    complex_parts=lambda x: tf.math.real(tf.signal.fft(tf.cast(x, tf.complex64))),
    complex_parts_of_rows=lambda x: tf.math.real(tf.transpose(tf.signal.fft(tf.transpose(tf.cast(x, tf.complex64))))),
    fourier_in_two_dimensions=lambda x: tf.math.real(tf.signal.fft2d(tf.cast(x, tf.complex64))),
    bits=lambda x: tf.bitcast(x, tf.int32),
    bytes_of=lambda x: tf.reshape(tf.bitcast(x, tf.uint8), [-1, 8]),
    # Static shapes that are not true.
    a_lie_of_one_row_summed=lambda x: x + tf.reduce_sum(_lie(x, 1, 4), 0, keepdims=True),
    a_lie_of_one_row_softmaxed=lambda x: x + tf.nn.softmax(_lie(x, 1, 4), 0),
    a_lie_of_one_row_reshaped=lambda x: tf.reshape(_lie(x, 1, 4), [-1, 4]),
    a_lie_of_one_row_flattened=lambda x: tf.reshape(tf.nn.softmax(tf.reshape(_lie(x, 1, 4), [1, -1])), [-1, 4]),
    a_lie_of_one_row_squeezed=lambda x: x + tf.reduce_max(_lie(x, 1, 4), 0),
    a_lie_of_one_row_gathered=lambda x: x + tf.gather(_lie(x, 1, 4), 0),
    a_lie_of_two_rows_stacked=lambda x: x - tf.stack(tf.split(_lie(tf.concat([x, x], 0), 2, 4), 2))[0],
    a_count_by_a_wider_reshape=lambda x: tf.reshape(x, tf.stack([_rows(x) * 2, tf.constant(2)])),
    a_mean_of_one=lambda x: tf.reduce_mean(tf.expand_dims(x, 0), 0),
    an_axis_by_a_tensor=lambda x: x - tf.reduce_max(x, tf.rank(x) - 1, keepdims=True),
    an_axis_by_a_tensor_of_rows=lambda x: x - tf.reduce_max(x, tf.rank(x) - 2, keepdims=True),
    an_axis_by_a_size=lambda x: x - tf.reduce_max(x, tf.shape(x)[1] - 4, keepdims=True),
    an_axis_by_a_value=lambda x: tf.roll(x, 1, tf.cast(x[0, 0] > 99.0, tf.int32)),
    a_shift_by_a_value=lambda x: tf.roll(x, tf.cast(x[0, 0], tf.int32), 1),
    a_shift_of_no_rows=lambda x: tf.roll(x, 0, 0),
    a_shift_by_the_count=lambda x: tf.roll(x, _rows(x), 0),
    a_shift_by_one_less_than_the_count=lambda x: tf.roll(x, _rows(x) - 1, 0),
    two_outputs=lambda x: {
        "own": x * 2.0,
        "mixed": tf.cumsum(x),
        "all": tf.reduce_sum(x),
        "constant": tf.constant(1.0),
    },
)


def _after(first: Sequence[Any], x: Any) -> Any:
    with tf.control_dependencies([each for each in first if each is not None]):
        return tf.identity(x)


_OTHERS = [
    *OPEN.all(
        open_reshaped_to_six=lambda x: tf.reshape(x, [-1, 6]),
        open_lie_of_a_wider_row=lambda x: tf.reshape(tf.nn.softmax(tf.reshape(_lie(x, None, 6), [-1, 6])), [-1, 3]),
        open_lie_of_a_narrow_row=lambda x: tf.reshape(_lie(x, None, 1), [-1])[: tf.shape(x)[0]],
        open_lie_of_a_narrow_row_out=lambda x: tf.reshape(_lie(x, None, 1), [-1]),
        open_reshaped_to_one=lambda x: tf.reshape(x, [-1, 1]),
        open_reshaped_by_its_width=lambda x: tf.reshape(x, [-1, tf.shape(x)[1]]),
        open_reshaped_by_its_count=lambda x: tf.reshape(x, [tf.shape(x)[0], -1]),
        open_reshaped_by_both_crossed=lambda x: tf.reshape(x, [tf.shape(x)[1], tf.shape(x)[0]]),
        open_flat_and_cut=lambda x: tf.reshape(x, [-1])[: tf.shape(x)[0]],
        open_square=lambda x: x @ tf.matmul(x, x, transpose_a=True),
        open_width_as_a_value=lambda x: x + tf.cast(tf.shape(x)[1], tf.float32),
        open_softmax=tf.nn.softmax,
        open_flat_softmax=lambda x: tf.reshape(tf.nn.softmax(tf.reshape(x, [-1, 1]), 1), tf.shape(x)),
        open_transposed_shape=lambda x: tf.reshape(x, tf.reverse(tf.shape(x), [0])),
        open_plus_column=lambda x: x + tf.reshape(x, [-1])[: tf.shape(x)[1]],
    ),
    *ANY.all(
        any_rank=lambda x: x * 2.0,
        any_rank_last=tf.nn.softmax,
        any_rank_first=lambda x: x - tf.reduce_mean(x, 0),
        any_rank_flat=lambda x: tf.reshape(x, [-1]),
        any_rank_by_its_shape=lambda x: tf.reshape(tf.reshape(x, [-1]), tf.shape(x)),
        any_rank_by_its_count=lambda x: tf.reshape(x, [tf.shape(x)[0], -1]),
        any_rank_transposed=tf.transpose,
        any_rank_transposed_twice=lambda x: tf.transpose(tf.transpose(x)),
        any_rank_dense=lambda x: tf.tensordot(x, tf.ones([3, 2]), 1),
    ),
    *COLUMN.all(
        vector_of_differences=lambda x: x[:, None] - x[None, :],
        vector_times_ones=lambda x: x * tf.ones([1]),
        vector_and_a_longer_constant=lambda x: x[:, None] + tf.constant([1.0, 2.0]),
        vector_and_a_constant_in_front=lambda x: x + tf.constant([[1.0], [2.0]]),
        vector_as_a_shape=lambda x: tf.fill([tf.shape(x)[0]], tf.shape(x)[0]),
        vector_as_text=tf.strings.as_string,
        vector_sorted_twice=lambda x: tf.gather(tf.sort(x), tf.argsort(tf.argsort(x, stable=True), stable=True)),
        vector_by_its_order=lambda x: tf.gather(x, tf.argsort(x, stable=True)),
        vector_unique=lambda x: tf.unique(x).y,
        vector_unique_back=lambda x: tf.gather(*tf.unique(x)[:2]),
        vector_unique_back_squared=lambda x: tf.gather(tf.unique(x).y ** 2, tf.unique(x).idx),
        vector_unique_softmax_back=lambda x: tf.gather(tf.nn.softmax(tf.unique(x).y), tf.unique(x).idx),
        vector_unique_counts=lambda x: tf.gather(tf.unique_with_counts(x).count, tf.unique(x).idx),
        vector_unique_of_another=lambda x: tf.gather(tf.unique(x + 1.0).y, tf.unique(x).idx),
        vector_unique_number=lambda x: tf.unique(x).idx,
        vector_inverted_permutation=lambda x: tf.math.invert_permutation(tf.argsort(x, stable=True)),
        vector_meshgrid=lambda x: tf.meshgrid(x, x)[0],
        vector_reversed_twice=lambda x: tf.reverse(tf.reverse(x, [0]), [0]),
        vector_diff=lambda x: x[1:] - x[:-1],
        vector_cumsum_undone=lambda x: tf.cumsum(x) - tf.cumsum(x, exclusive=True),
    ),
    *IMAGE.all(
        image_convolved=lambda x: tf.nn.conv2d(x, tf.ones([3, 3, 2, 3]), 1, "SAME"),
        image_pooled_with_places=lambda x: tf.nn.max_pool_with_argmax(x, 2, 2, "VALID", include_batch_in_index=True)[1],
        image_pooled_with_own_places=lambda x: tf.nn.max_pool_with_argmax(x, 2, 2, "VALID")[1],
        image_pooled=lambda x: tf.nn.max_pool2d(x, 2, 2, "SAME"),
        image_average=lambda x: tf.nn.avg_pool2d(x, 2, 2, "SAME"),
        image_convolved_across_rows=lambda x: tf.transpose(
            tf.nn.conv2d(tf.transpose(x, [1, 0, 2, 3]), tf.ones([3, 1, 2, 2]), 1, "SAME"), [1, 0, 2, 3]
        ),
        image_pooled_across_rows=lambda x: tf.nn.max_pool3d(x[None], [1, 2, 2, 2, 1][1:4], 1, "SAME")[0],
        image_batches_to_space=lambda x: tf.batch_to_space(tf.concat([x] * 4, 0), [2, 2], [[0, 0], [0, 0]]),
        image_space_to_batch=lambda x: tf.space_to_batch(x, [2, 2], [[0, 0], [0, 0]]),
        image_space_to_batch_and_back=lambda x: tf.batch_to_space(
            tf.space_to_batch(x, [2, 2], [[0, 0], [0, 0]]) * 2.0, [2, 2], [[0, 0], [0, 0]]
        ),
        image_dilated=lambda x: tf.nn.conv2d(x, tf.ones([2, 2, 2, 2]), 1, "SAME", dilations=2),
        image_depth_to_space=lambda x: tf.nn.depth_to_space(tf.concat([x, x], -1), 2),
        image_resized=lambda x: tf.image.resize(x, [8, 8]),
        image_resized_across_rows=lambda x: tf.image.resize(x[None, :, :, 0], [tf.shape(x)[0], 8])[0],
        image_standardised=tf.image.per_image_standardization,
        image_normalised_in_training=lambda x: tf.compat.v1.nn.fused_batch_norm(x, [1.0, 1.0], [0.0, 0.0])[0],
        image_normalised=lambda x: tf.compat.v1.nn.fused_batch_norm(
            x, [1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0], is_training=False
        )[0],
        image_normalised_locally=tf.nn.local_response_normalization,
        image_flipped=tf.image.flip_left_right,
        image_cropped=lambda x: tf.image.crop_and_resize(
            x, tf.tile([[0.0, 0.0, 0.5, 0.5]], [tf.shape(x)[0], 1]), tf.range(tf.shape(x)[0]), [2, 2]
        ),
        image_cropped_of_the_first=lambda x: tf.image.crop_and_resize(
            x, tf.tile([[0.0, 0.0, 0.5, 0.5]], [tf.shape(x)[0], 1]), tf.zeros(tf.shape(x)[:1], tf.int32), [2, 2]
        ),
        image_patches=lambda x: tf.image.extract_patches(x, [1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], "VALID"),
        image_total_variation=tf.image.total_variation,
        image_gradient=lambda x: tf.image.image_gradients(x)[0],
    ),
    *CUBE.all(
        cube_matmul=lambda x: tf.matmul(x, x, transpose_b=True),
        cube_matmul_across=lambda x: tf.transpose(tf.matmul(tf.transpose(x, [1, 0, 2]), tf.ones([2, 3, 3])), [1, 0, 2]),
        cube_matmul_broadcast=lambda x: tf.matmul(x[:, None], x[None], transpose_b=True)[:, 0],
        cube_einsum_heads=lambda x: tf.einsum("bhd,bkd->bhk", x, x),
        cube_einsum_crossed=lambda x: tf.einsum("bhd,chd->bc", x, x),
        cube_flat_dense=lambda x: tf.reshape(tf.reshape(x, [-1, 3]) @ tf.ones([3, 5]), [-1, 2, 5]),
        cube_flat_wrong=lambda x: tf.reshape(x, [-1, 6])[:, ::-1],
        cube_folded_in_front=lambda x: tf.reshape(tf.transpose(x, [1, 0, 2]), [-1, 3]),
        cube_folded_in_front_and_back=lambda x: tf.transpose(
            tf.reshape(tf.reshape(tf.transpose(x, [1, 0, 2]), [-1, 3]) * 2.0, [2, -1, 3]), [1, 0, 2]
        ),
        cube_folded_in_front_and_back_wrongly=lambda x: tf.reshape(
            tf.reshape(tf.transpose(x, [1, 0, 2]), [-1, 3]) * 2.0, [-1, 2, 3]
        ),
        cube_layer_norm=lambda x: x - tf.reduce_mean(x, [1, 2], keepdims=True),
        cube_norm_over_two=lambda x: x - tf.reduce_mean(x, [0, 2], keepdims=True),
        cube_scan=lambda x: tf.scan(lambda a, b: a + b, tf.transpose(x, [1, 0, 2])),
        cube_reverse_sequence=lambda x: tf.reverse_sequence(x, tf.fill([tf.shape(x)[0]], 2), 1, 0),
        cube_reverse_sequence_of_rows=lambda x: tf.reverse_sequence(x, [tf.shape(x)[0]] * 2, 0, 1),
    ),
    *NUMBERS.all(
        ids_pooled=lambda x: tf.cast(tf.reduce_sum(x, 1), tf.float32),
        ids_hot=lambda x: tf.one_hot(x, 5),
        ids_hot_to_the_largest=lambda x: tf.one_hot(x, tf.reduce_max(x) + 1),
        ids_hot_to_the_count=lambda x: tf.one_hot(x, tf.shape(x)[0]),
        ids_counted=lambda x: tf.math.bincount(x, minlength=5, maxlength=5, axis=-1),
        ids_counted_to_the_largest=lambda x: tf.math.bincount(x, axis=-1),
        ids_counted_together=lambda x: tf.gather(tf.math.bincount(x, minlength=5, maxlength=5), x),
        ids_masked_mean=lambda x: tf.reduce_sum(x, 1) / tf.maximum(tf.reduce_sum(tf.cast(x > 0, tf.int32), 1), 1),
        ids_mean_of_all=lambda x: tf.reduce_sum(x, 1) / tf.maximum(tf.reduce_sum(tf.cast(x > 0, tf.int32)), 1),
        ids_sequence_mask=lambda x: tf.sequence_mask(x[:, 0], 5),
        ids_sequence_mask_to_the_longest=lambda x: tf.sequence_mask(x[:, 0]),
        ids_sparse_to_dense=lambda x: tf.sparse.to_dense(_sparse(x, filled=False)),
        ids_sparse_summed=lambda x: tf.sparse.reduce_sum(_sparse(x, filled=False), 1),
        ids_sparse_summed_together=lambda x: x + tf.sparse.reduce_sum(_sparse(x, filled=False)),
        ids_sparse_values=lambda x: _sparse(x, filled=False).values,
        ids_sparse_matmul=lambda x: tf.sparse.sparse_dense_matmul(
            tf.cast(_sparse(x, filled=False), tf.float32), tf.ones([3, 2])
        ),
        ids_sparse_softmax=lambda x: tf.sparse.to_dense(
            tf.sparse.softmax(tf.cast(_sparse(x, filled=False), tf.float32))
        ),
        ids_sparse_reordered=lambda x: tf.sparse.to_dense(tf.sparse.transpose(_sparse(x, filled=False))),
        ids_shifted_by_the_smallest=lambda x: x - tf.reduce_min(x),
        ids_modulo_the_count=lambda x: x % tf.shape(x)[0],
        ids_confusion=lambda x: tf.gather(tf.math.confusion_matrix(x[:, 0], x[:, 1], 5), x[:, 0]),
        ids_setdiff=lambda x: tf.sets.size(tf.sets.intersection(x[:, :2], x[:, 1:])),
    ),
    NUMBERS("ids_embedded", lambda x, table: tf.gather(table, x), _table),
    NUMBERS("ids_embedded_and_pooled", lambda x, table: tf.reduce_mean(tf.nn.embedding_lookup(table, x), 1), _table),
    NUMBERS("ids_embedded_and_pooled_over_rows", lambda x, table: tf.reduce_mean(tf.gather(table, x), 0), _table),
    *[
        NUMBERS(
            f"ids_sparse_lookup_{combiner}_{'filled' if filled else 'not_filled'}",
            lambda x, table, filled=filled, combiner=combiner: tf.nn.embedding_lookup_sparse(
                table, _sparse(x, filled=filled), None, combiner=combiner
            ),
            _table,
        )
        for combiner in ("sum", "mean", "sqrtn")
        for filled in (False, True)
    ],
    NUMBERS(
        "ids_sparse_lookup_safe",
        lambda x, table: tf.nn.safe_embedding_lookup_sparse(table, _sparse(x, filled=False)),
        _table,
    ),
    NUMBERS("ids_tied", lambda x, table: tf.gather(table, x[:, 0]) @ tf.transpose(table), _table),
    *NUMBER.all(
        lists_as_wide_as_the_widest=lambda x: _ragged(x).to_tensor(),
        lists_of_five=lambda x: _ragged(x).to_tensor(shape=[None, 5]),
        lists_summed=lambda x: tf.reduce_sum(_ragged(x), 1),
        lists_summed_over_rows=lambda x: tf.reduce_sum(_ragged(x), 0),
        lists_values=lambda x: _ragged(x).flat_values,
        lists_lengths=lambda x: _ragged(x).row_lengths(),
        lists_splits=lambda x: _ragged(x).row_splits,
        lists_starts=lambda x: _ragged(x).row_starts(),
        lists_row_numbers=lambda x: _ragged(x).value_rowids(),
        ranges_of_rows=lambda x: tf.ragged.range(x).to_tensor(shape=[None, 5]),
        ranges_of_rows_together=lambda x: tf.range(tf.reduce_sum(x)),
        number_of_rows_by_value=lambda x: tf.repeat(x, x),
        number_by_gather=lambda x: tf.gather(tf.constant([5, 6, 7, 8, 9]), x),
        number_by_the_largest=lambda x: tf.gather(tf.range(tf.reduce_max(x) + 1), x),
        number_squared_by_the_largest=lambda x: tf.gather(tf.range(tf.reduce_max(x) + 1) * tf.reduce_max(x), x),
        number_by_its_rank=lambda x: tf.math.bincount(x)[: tf.shape(x)[0]],
        number_by_a_sum_so_far=lambda x: tf.cumsum(x) - x,
        number_to_text=tf.strings.as_string,
        number_as_a_seed=lambda x: tf.map_fn(
            lambda n: tf.random.stateless_uniform([2], tf.stack([n, 1])), x, fn_output_signature=tf.float32
        ),
        number_as_a_shape=lambda x: tf.map_fn(
            lambda n: tf.reduce_sum(tf.ones(tf.stack([n, 2]))), x, fn_output_signature=tf.float32
        ),
        number_chosen=lambda x: tf.switch_case(x[0] % 2, [lambda: x, lambda: x + 1]),
    ),
    *TEXT.all(
        text_lengths=tf.strings.length,
        text_hashed=lambda x: tf.strings.to_hash_bucket_fast(x, 11),
        text_words_as_wide_as_the_widest=lambda x: tf.strings.split(x).to_tensor(),
        text_words_of_three=lambda x: tf.strings.split(x).to_tensor(shape=[None, 3]),
        text_words_counted=lambda x: tf.strings.split(x).row_lengths(),
        text_words_flat=lambda x: tf.strings.split(x).flat_values,
        text_words_numbered=lambda x: (
            tf.strings.split(x)
            .with_flat_values(tf.range(tf.size(tf.strings.split(x).flat_values)))
            .to_tensor(shape=[None, 3])
        ),
        text_joined=lambda x: tf.strings.join([x, tf.strings.reduce_join(x)]),
        text_joined_with_the_first=lambda x: tf.strings.join([x, x[0]]),
        text_joined_with_a_constant=lambda x: tf.strings.join([x, "!"]),
        text_joined_by_words=lambda x: tf.strings.reduce_join(tf.strings.split(x), 1, separator="-"),
        text_equal_to_the_first=lambda x: x == x[:1],
        text_equal_to_each=lambda x: x[:, None] == x[None],
        text_lower_replaced=lambda x: tf.strings.regex_replace(tf.strings.lower(x), "b+", "-"),
        text_substrings_to_the_shortest=lambda x: tf.strings.substr(x, 0, tf.reduce_min(tf.strings.length(x))),
        text_bytes=lambda x: tf.io.decode_raw(tf.strings.substr(tf.strings.join([x, "      "]), 0, 6), tf.uint8),
        text_bytes_of_the_widest=lambda x: tf.strings.unicode_decode(x, "UTF-8").to_tensor(),
        text_bigrams=lambda x: tf.strings.ngrams(tf.strings.split(x), 2).row_lengths(),
        text_unique=lambda x: tf.unique(x).idx,
        text_unique_back=lambda x: tf.strings.length(tf.gather(*tf.unique(x)[:2])),
        text_first_words=lambda x: tf.strings.split(tf.strings.join(["w ", x])).to_tensor()[:, 0],
    ),
    TEXT("text_looked_up", lambda x, table: table.lookup(x), _words),
    TEXT("text_looked_up_and_ranked", lambda x, table: tf.argsort(table.lookup(x), stable=True), _words),
    TEXT("text_table_size", lambda x, table: table.lookup(x) + table.size(), _words),
    *SEQUENCE.all(
        time_mean=lambda x: tf.reduce_mean(x, 1),
        time_flat_dense=lambda x: tf.reshape(tf.reshape(x, [-1, 3]) @ tf.ones([3, 2]), [-1, tf.shape(x)[1], 2]),
        time_flat_dense_by_count=lambda x: tf.reshape(
            tf.reshape(x, [-1, 3]) @ tf.ones([3, 2]), [tf.shape(x)[0], -1, 2]
        ),
        time_flat_dense_by_the_wrong_sizes=lambda x: tf.reshape(
            tf.reshape(x, [-1, 3]) @ tf.ones([3, 2]), [tf.shape(x)[1], tf.shape(x)[0], 2]
        ),
        time_flat_of_six=lambda x: tf.reshape(x, [-1, 6]),
        time_flat_softmax=lambda x: tf.reshape(tf.nn.softmax(tf.reshape(x, [-1, 3]), 0), tf.shape(x)),
        time_position=lambda x: x + tf.cast(tf.range(tf.shape(x)[1]), tf.float32)[None, :, None],
        time_position_of_rows=lambda x: x + tf.cast(tf.range(tf.shape(x)[0]), tf.float32)[:, None, None],
        time_causal_mask=lambda x: tf.linalg.band_part(tf.ones([tf.shape(x)[1]] * 2), -1, 0) @ x,
        time_mask_of_rows=lambda x: tf.transpose(
            tf.linalg.band_part(tf.ones([tf.shape(x)[0]] * 2), -1, 0) @ tf.transpose(x, [1, 0, 2]), [1, 0, 2]
        ),
        time_last=lambda x: x[:, -1],
        time_last_of_rows=lambda x: x - x[-1:],
        time_convolved=lambda x: tf.nn.conv1d(x, tf.ones([3, 3, 2]), 1, "SAME"),
        time_convolved_over_rows=lambda x: tf.transpose(
            tf.nn.conv1d(tf.transpose(x, [1, 0, 2]), tf.ones([3, 3, 2]), 1, "SAME"), [1, 0, 2]
        ),
        time_major_summed=lambda x: tf.reduce_sum(tf.transpose(x, [1, 0, 2]), 0),
        time_major_summed_over_rows=lambda x: tf.reduce_sum(tf.transpose(x, [1, 0, 2]), 1),
    ),
    *TWO.all(
        two_added=lambda a, b: a + b,
        two_shape_of_the_other=lambda a, b: tf.reshape(tf.reshape(a, [-1]), tf.shape(b)),
        two_count_of_the_other=lambda a, b: tf.reshape(a, [tf.shape(b)[0], 4]),
        two_filled_by_the_other=lambda a, b: tf.fill([tf.shape(b)[0]], 1.0)[:, None] * a,
        two_range_of_the_other=lambda a, b: tf.gather(a, tf.range(tf.shape(b)[0])),
        two_crossed=lambda a, b: tf.matmul(a, b, transpose_b=True),
        two_paired=lambda a, b: tf.einsum("bi,bi->b", a, b),
        two_joined=lambda a, b: tf.concat([a, b], 0)[: tf.shape(a)[0]],
        two_joined_beside=lambda a, b: tf.concat([a, b], 1),
        two_interleaved=lambda a, b: tf.reshape(tf.stack([a, b], 1), [-1, 8]),
        two_interleaved_in_front=lambda a, b: tf.reshape(tf.stack([a, b], 0), [-1, 8]),
        two_stacked=lambda a, b: tf.reduce_max(tf.stack([a, b]), 0),
        two_with_the_first_of_the_other=lambda a, b: a + b[0],
        two_chosen_by_the_other=lambda a, b: tf.where(b > 0.0, a, -a),
        two_chosen_by_all_of_the_other=lambda a, b: tf.where(tf.reduce_any(b > 0.0), a, -a),
        two_products_of_counts=lambda a, b: a * tf.cast(tf.shape(a)[0] // tf.shape(b)[0], tf.float32),
        two_batched_matrix=lambda a, b: tf.matmul(a[:, None], b[:, :, None])[:, 0, 0],
        two_compared_with_all=lambda a, b: tf.reduce_min(tf.reduce_sum((a[:, None] - b[None]) ** 2, 2), 1),
        two_sorted_by_the_other=lambda a, b: tf.gather(a, tf.argsort(b[:, 0], stable=True)),
        two_sorted_by_the_other_each=lambda a, b: tf.gather(a, tf.argsort(b, stable=True), batch_dims=1, axis=1),
    ),
]

CASES: Sequence[Deception] = (*deceptions_by_axis.CASES, *deceptions_in_loops.CASES, *_MATRIX, *_OTHERS)
