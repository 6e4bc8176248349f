"""Rows of states: none is given twice, growth keeps them, limits hold, and an empty arena is small."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import InferenceFailed, Overloaded, RequestTooLarge
from app.pipelines.fold.arena import Arena

FLOAT = np.dtype(np.float32)
SMALL = {"h": ((2,), FLOAT), "kind": ((), np.dtype(np.int8))}  # 9 bytes a row


@given(random=st.randoms(use_true_random=True))
def test_each_row_belongs_to_one(random: Random) -> None:
    arena = Arena(SMALL, 20_000, 1 << 30)
    held: list[tuple[np.ndarray, int]] = []
    for step in range(40):
        if held and random.random() < 0.4:
            rows, value = held.pop(random.randrange(len(held)))
            assert arena.gather("kind", rows).tolist() == [value] * len(rows)
            arena.free(rows)
            continue
        count = random.choice((1, 7, 900))
        rows = arena.allocate(count)
        arena.scatter(rows, {"kind": np.full(count, step, np.int8), "h": np.full((count, 2), step, FLOAT)})
        held.append((rows, step))
        taken = np.concatenate([rows for rows, _ in held])
        assert len(set(taken.tolist()) - {0}) == len(taken) == arena.taken
    for rows, value in held:
        np.testing.assert_array_equal(arena.gather("h", rows), np.full((len(rows), 2), value))
    assert arena.gather("h", np.zeros(1, np.intp)).tolist() == [[0, 0]]


def test_rows_can_be_used_again_however_they_were_freed() -> None:
    arena = Arena(SMALL, 10_000, 1 << 30)
    parts = [arena.allocate(10) for _ in range(1000)]
    for rows in parts[::2]:
        arena.free(rows)
    arena.allocate(5000)  # all that is free, in no place 11 neighbours
    assert arena.taken == 10_000


def test_limits() -> None:
    arena = Arena(SMALL, 100, 1 << 30)
    arena.allocate(60)
    with pytest.raises(Overloaded, match="holds 60 nodes, at most 100; 41 more do not fit"):
        arena.allocate(41)
    with pytest.raises(RequestTooLarge, match="the request has 101 nodes; expected at most 100"):
        arena.allocate(101)
    arena.allocate(40)
    assert repr(arena) == "<Arena 100/100 rows, 909 bytes (h, kind)>"


def test_bytes_are_bounded() -> None:
    arena = Arena(SMALL, 10**6, 90_000)
    assert arena.most_rows == 9_999
    arena.allocate(9_999)
    assert arena.nbytes <= 90_000
    with pytest.raises(Overloaded):
        arena.allocate(1)


def test_an_empty_arena_is_small_again() -> None:
    arena = Arena(SMALL, 10**6, 1 << 30)
    few = arena.nbytes
    large, small = arena.allocate(50_000), arena.allocate(10)
    assert arena.nbytes > 10 * few
    arena.free(large)
    arena.free(small)
    assert arena.nbytes == few
    assert arena.allocate(20).size == 20


def test_values_of_another_shape_or_dtype_are_not_written() -> None:
    arena = Arena(SMALL, 100, 1 << 30)
    rows = arena.allocate(3)
    kind = np.ones(3, np.int8)
    for wrong in (np.ones((1, 2), FLOAT), np.ones((3, 2)), np.ones((3, 1), FLOAT)):
        with pytest.raises(InferenceFailed, match=r"h: expected float32\[3,2\], got float"):
            arena.scatter(rows, {"kind": kind, "h": wrong})
    assert arena.gather("kind", rows).tolist() == [0, 0, 0]
    arena.scatter(rows, {"h": np.ones((2, 3), FLOAT).T})  # in another order in memory
    assert arena.gather("h", rows).sum() == 6


def test_states_are_numbers() -> None:
    with pytest.raises(ValueError, match="got strings"):
        Arena({"text": ((), np.dtype(object))}, 10, 1000)
    with pytest.raises(ValueError, match="expected states with elements"):
        Arena({"none": ((0,), FLOAT)}, 10, 1000)
