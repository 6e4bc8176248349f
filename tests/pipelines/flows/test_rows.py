from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.errors import InferenceFailed
from app.core.inference import STRING, Array, TensorSpec
from app.pipelines.flows.rows import NO_ROWS, Rows, intersection, join, pick, union

COUNT = 6
SPEC = TensorSpec("y", np.dtype(np.int64), (None,))

#: The rows of a set, as a plain set of numbers; None for all.
Plain = frozenset[int] | None

plain_sets = st.none() | st.frozensets(st.integers(0, COUNT - 1))


def rows_of(plain: Plain) -> Rows:
    return None if plain is None else np.array(sorted(plain), np.intp)


def plain_of(rows: Rows) -> list[int]:
    return list(range(COUNT)) if rows is None else rows.tolist()


def numbers_of(plain: Plain) -> list[int]:
    return plain_of(rows_of(plain))


@settings(max_examples=100)
@given(st.lists(plain_sets))
def test_an_intersection_has_the_rows_that_are_in_all_sets(sets: list[Plain]) -> None:
    want = [row for row in range(COUNT) if all(plain is None or row in plain for plain in sets)]
    assert plain_of(intersection(map(rows_of, sets))) == want


@settings(max_examples=100)
@given(st.lists(plain_sets, min_size=1))
def test_a_union_has_the_rows_that_are_in_one_set(sets: list[Plain]) -> None:
    want = [row for row in range(COUNT) if any(plain is None or row in plain for plain in sets)]
    assert plain_of(union([rows_of(plain) for plain in sets])) == want


def test_sets_of_all_rows_stay_all_rows() -> None:
    some = np.array([1, 2])
    assert intersection([None, None]) is None
    assert union([some, None]) is None


def test_the_only_set_is_passed_on_as_it_is() -> None:
    some = np.array([1, 2])
    assert intersection([None, some, some]) is some
    assert union([some]) is some


@settings(max_examples=100)
@given(plain_sets, st.data())
def test_a_pick_has_each_row_that_was_asked_for_in_order(own: Plain, data: st.DataObject) -> None:
    there = numbers_of(own)
    asked = data.draw(st.frozensets(st.sampled_from(there)) if there else st.just(frozenset[int]()))
    array = np.array([[10 * row, 10 * row + 1] for row in there], np.int64).reshape(-1, 2)
    want = [[10 * row, 10 * row + 1] for row in sorted(asked)]
    assert pick(array, rows_of(own), rows_of(asked)).tolist() == want


def test_a_pick_of_all_rows_copies_nothing() -> None:
    array, some = np.arange(3), np.array([0, 2, 5])
    assert pick(array, None, None) is array
    assert pick(array, some, some) is array
    assert pick(array, some, some.copy()) is array


def joined_by_hand(parts: Sequence[Plain], wanted: Sequence[int], rest: int) -> list[int]:
    """For each row 100 times the number of the first part that has it, and the row; else the rest."""
    found = []
    for row in wanted:
        having = [number for number, plain in enumerate(parts) if plain is None or row in plain]
        found.append(100 * having[0] + row if having else rest)
    return found


@settings(max_examples=200)
@given(st.lists(plain_sets, max_size=4), plain_sets)
def test_joined_rows_come_from_the_first_part_that_has_them(parts: list[Plain], wanted: Plain) -> None:
    arrays: list[tuple[Array, Rows]] = [
        (np.array([100 * number + row for row in numbers_of(plain)], np.int64), rows_of(plain))
        for number, plain in enumerate(parts)
    ]
    got = join(arrays, -1, rows_of(wanted), COUNT, SPEC)
    assert got.tolist() == joined_by_hand(parts, numbers_of(wanted), -1)


def test_joined_rows_keep_their_type_and_shape() -> None:
    first = np.array([[b"a", b"b"]], STRING), np.array([1])
    second = np.array([[b"c", b"d"], [b"e", b"f"]], STRING), None
    got = join([first, second], None, None, 2, TensorSpec("y", STRING, (None, 2)))
    assert got.tolist() == [[b"c", b"d"], [b"a", b"b"]]
    assert got.dtype == STRING


def test_a_join_writes_to_no_part() -> None:
    part = np.arange(3)
    join([(part, None)], 0, None, 3, SPEC)[:] = 7
    assert part.tolist() == [0, 1, 2]


def test_rows_of_different_shapes_are_not_joined() -> None:
    parts = [(np.zeros((1, 2)), np.array([0])), (np.zeros((2, 3)), None)]
    with pytest.raises(InferenceFailed, match=r"Rows of 'y' come from different steps and differ in shape: \[2\]"):
        join(parts, None, None, 2, SPEC)


def test_a_part_without_wanted_rows_may_have_another_shape() -> None:
    parts = [(np.zeros((1, 2)), np.array([0])), (np.ones((2, 3)), None)]
    assert join(parts, None, np.array([1]), 2, SPEC).shape == (1, 3)


def test_where_there_is_no_part_the_rest_has_the_shape_of_the_spec() -> None:
    spec = TensorSpec("y", np.dtype(np.float32), (None, 3, None))
    got = join([], 0.5, None, 2, spec)
    assert got.tolist() == [[[0.5], [0.5], [0.5]]] * 2
    assert got.dtype == np.float32


def test_where_no_part_has_wanted_rows_the_rest_has_the_shape_of_the_first() -> None:
    spec = TensorSpec("y", np.dtype(np.float32), (None, 3, None))
    got = join([(np.ones((1, 3, 2), np.float32), np.array([0]))], 0.5, np.array([1]), 2, spec)
    assert got.tolist() == [[[0.5, 0.5]] * 3]


@pytest.mark.parametrize("dtype", [np.bool_, np.uint64, np.int8, np.float16, ml_dtypes.bfloat16, np.complex64, STRING])
def test_a_request_without_rows_gets_none_of_the_shape_that_its_parts_have(dtype: type) -> None:
    parts = [(np.zeros((0, 4), dtype), None), (np.zeros((0, 4), dtype), NO_ROWS)]
    got = join(parts, None, None, 0, TensorSpec("y", np.dtype(dtype), (None, None)))
    assert got.shape == (0, 4)
    assert got.dtype == dtype


def test_where_there_is_no_part_a_spec_of_unknown_rank_makes_one_value_a_row() -> None:
    assert join([], 1, None, 2, TensorSpec("y", np.dtype(np.int64), None)).tolist() == [1, 1]


def test_rows_that_nothing_computed_are_an_error_and_no_numbers() -> None:
    with pytest.raises(InferenceFailed, match="Rows of 'y' were computed by no step"):
        join([(np.array([1, 2]), rows_of(frozenset({0, 1})))], None, None, 3, SPEC)
