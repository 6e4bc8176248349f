"""What is kept of requests, its bounds, and when it is enough."""

import gc
import tracemalloc
from collections.abc import Callable, Mapping

import ml_dtypes  # noqa: F401 - names bfloat16
import numpy as np
import pytest

from app.batching.proof.kept_rows import (
    ARRAY_BYTES,
    LEAST_REQUESTS,
    LEAST_ROWS,
    MOST_BYTES,
    MOST_ROWS,
    ROW_BYTES,
    KeptRows,
    row_count,
)
from app.batching.shapes.sparse import SparseRows
from app.core.inference import Array, SparseParts, string_array

#: Bytes of one of `rows` and its answer.
ROW = ROW_BYTES + 2 * (ARRAY_BYTES + 8)


def rows(*values: float) -> Mapping[str, Array]:
    return {"x": np.array(values).reshape(-1, 1)}


def offer(kept: KeptRows, *values: float, caller: str = "") -> None:
    x = rows(*values)
    kept.offer(x, {"y": 2 * x["x"]}, caller)


def fill(kept: KeptRows, count: int = LEAST_ROWS, first: int = 1, caller: str = "") -> None:
    for value in range(first, first + count):
        offer(kept, float(value), caller=caller)


def test_a_few_rows_are_enough_where_callers_send_no_others() -> None:
    kept = KeptRows()
    for turn in range(70):
        fill(kept, 8)
        if turn == 5:
            assert kept.missing.startswith("8 of 32")
    assert kept.missing == ""


def test_rows_of_few_requests_are_not_enough() -> None:
    kept = KeptRows()
    for request in range(LEAST_REQUESTS - 1):
        offer(kept, *[100.0 * request + value for value in range(40)])
    assert kept.missing == f"different rows of {LEAST_REQUESTS - 1} of {LEAST_REQUESTS} requests have come"
    offer(kept, 1e4)
    assert kept.missing == ""


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_rows_of_nan_and_infinity_do_not_count(odd: float) -> None:
    kept = KeptRows()
    for value in range(60):
        kept.offer({"x": np.array([[value, odd]])}, {"y": np.array([[value]])})
        kept.offer({"x": np.array([[value, 1.0]])}, {"y": np.array([[odd]])})
    assert kept.bytes == 0
    assert kept.missing.startswith("0 of")


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float32", "int64", "bool", "complex64"])
def test_rows_of_every_type_are_kept(name: str) -> None:
    kept = KeptRows()
    kept.offer({"x": np.ones((1, 3), np.dtype(name))}, {"y": np.ones((1, 3), np.dtype(name))})
    kept.offer({"x": np.zeros((1, 3), np.dtype(name))}, {"y": np.zeros((1, 3), np.dtype(name))})
    assert kept.missing.startswith("2 of")


def test_texts_that_differ_only_in_where_they_end_are_different_rows() -> None:
    kept = KeptRows()
    for texts in ([b"a", b"bc"], [b"ab", b"c"], [b"ab", b"c"]):
        kept.offer({"x": string_array(texts).reshape(1, 2)}, {"y": np.array([len(texts[0])])})
    assert kept.missing.startswith("2 of")


def test_values_that_differ_by_rounding_are_the_same() -> None:
    kept = KeptRows()
    for value in range(60):
        x = np.array([[1.0 + value * 1e-14]])
        kept.offer({"x": x}, {"y": x})
    assert kept.missing == "input 'x' was the same in all rows"


def test_what_is_kept_is_bounded_in_rows_and_bytes() -> None:
    kept = KeptRows()
    fill(kept, 500)
    assert kept.bytes == MOST_ROWS * ROW
    kept = KeptRows()
    row = np.zeros((1, 1 << 19))
    for value in range(40):
        row[0, 0] = value
        kept.offer({"x": row}, {"y": row[:, :1].copy()})
        assert kept.bytes <= MOST_BYTES
    assert kept.missing == "", "11 rows are enough if no more fit"


def numbers(value: int) -> Mapping[str, Array]:
    return {"x": np.full((1, 1), value, np.float64)}


def wide(value: int) -> Mapping[str, Array]:
    return {"x": np.full((1, 1000), value, np.float32)}


def columns(value: int) -> Mapping[str, Array]:
    return {f"x{column}": np.full((1, 1), value, np.float64) for column in range(50)}


def texts(value: int) -> Mapping[str, Array]:
    return {"x": string_array([b"%d of %d" % (place, value) for place in range(1000)]).reshape(1, -1)}


def long_texts(value: int) -> Mapping[str, Array]:
    return {"x": string_array([b"%08d" % value * 1000])}


@pytest.mark.parametrize("make", [numbers, wide, columns, texts, long_texts])
def test_what_is_kept_takes_no_more_memory_than_is_counted(make: Callable[[int], Mapping[str, Array]]) -> None:
    kept = KeptRows()
    gc.collect()
    tracemalloc.start()
    try:
        for value in range(MOST_ROWS):
            kept.offer(make(value), {"y": np.full((1, 1), float(value))})
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
        assert kept.bytes / 4 < taken < kept.bytes + 8192  # the dictionary of the rows
        counted = kept.bytes
        kept.let_go()
        gc.collect()
        left, _ = tracemalloc.get_traced_memory()
        assert left < counted / 20 + 8192
    finally:
        tracemalloc.stop()


def test_no_row_is_kept_that_finds_no_room() -> None:
    kept = KeptRows()
    x = rows(1.0)
    kept.offer(x, {"y": x["x"]}, room=ROW - 1)
    assert kept.bytes == 0
    kept.offer(x, {"y": x["x"]}, room=ROW)
    assert kept.bytes == ROW


def test_rows_of_other_shapes_are_kept_only_once_those_of_the_first_do_not_come_any_more() -> None:
    kept = KeptRows()
    offer(kept, 1.0)
    wide = np.arange(300.0)
    for value in wide:
        kept.offer({"x": np.array([[value, 1.0]])}, {"y": np.array([[value]])})
        if value == 100:
            assert kept.missing.startswith("1 of")
    assert kept.missing == ""


def test_requests_without_equally_many_rows_take_no_part() -> None:
    assert row_count({"x": np.zeros((2, 3)), "z": np.zeros(2)}, None) == 2
    assert row_count({"x": np.zeros((2, 3)), "z": np.zeros(3)}, None) == -1
    assert row_count({"x": np.zeros((2, 3)), "z": np.array(1)}, None) == -1
    assert row_count({}, None) == -1
    kept = KeptRows()
    kept.offer(rows(1.0, 2.0), {"y": np.array([3.0])})
    kept.offer({"x": np.zeros((0, 1))}, {"y": np.zeros((0, 1))})
    assert kept.bytes == 0


# --- sparse inputs ---

SPARSE = SparseRows({}, (SparseParts("x", "v", "s"),))


def offer_sparse(kept: KeptRows, columns: list[int], values: list[float], width: int = 9) -> None:
    """A request of two rows: one of these entries, and one of none."""
    indices = np.array([[0, column] for column in columns], np.int64).reshape(-1, 2)
    inputs = {"x": indices, "v": np.array(values, np.float32), "s": np.array([2, width])}
    kept.offer(inputs, {"y": np.array([sum(values) + 100 * sum(columns), 0.0])})


def test_rows_of_sparse_tensors_are_kept_each_by_itself() -> None:
    kept = KeptRows(ragged=SPARSE)
    offer_sparse(kept, [1, 3], [1.0, 2.0])
    full, empty = kept.rows
    assert {name: array.tolist() for name, array in full.inputs.items()} == {
        "x": [[0, 1], [0, 3]], "v": [1.0, 2.0], "s": [1, 9],
    }  # fmt: skip
    assert {name: array.tolist() for name, array in empty.inputs.items()} == {"x": [], "v": [], "s": [1, 9]}
    kept.let_go()
    assert (kept.bytes, kept.rows) == (0, [])


def test_the_shape_of_a_row_need_not_differ_but_entries_must() -> None:
    kept = KeptRows(ragged=SPARSE)
    for value in range(1, 40):
        offer_sparse(kept, [3], [float(value)])
    assert kept.missing == ""
    equal = KeptRows(ragged=SPARSE)
    for value in range(1, 40):
        equal.offer(
            {"x": np.array([[0, 3]]), "v": np.array([value], np.float32), "s": np.array([1, 9])},
            {"y": np.array([value])},
        )
    assert equal.missing == "input 'x' was the same in all rows"


def test_only_rows_of_equal_widths_are_kept() -> None:
    kept = KeptRows(ragged=SPARSE)
    offer_sparse(kept, [1], [1.0])
    offer_sparse(kept, [2], [2.0], width=10)
    assert {tuple(row.inputs["s"].tolist()) for row in kept.rows} == {(1, 9)}


def test_parts_that_do_not_fit_have_no_rows() -> None:
    inputs = {"x": np.zeros((0, 2), np.int64), "v": np.zeros(0, np.float32), "s": np.array([2, 9])}
    assert row_count(inputs, SPARSE) == 2
    assert row_count({**inputs, "more": np.zeros(3)}, SparseRows({}, SPARSE.sparse)) == -1
    assert row_count({**inputs, "s": np.zeros(0, np.int64)}, SPARSE) == -1
