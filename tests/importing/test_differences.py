"""What counts as the same answer, and how a difference is told."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from app.core.inference import STRING, Array
from app.importing.differences import compare, same_structure

ROWS = np.array([[1.0, -200.0], [0.5, 3.0]], np.float32)


def _with(place: tuple[int, ...], value: object, array: Array = ROWS) -> Array:
    changed = array.copy()
    changed[place] = value
    return changed


def test_equal_answers_have_no_difference() -> None:
    assert compare({"y": ROWS}, {"y": ROWS.copy()}) == (0.0, "")


def test_differences_are_relative_to_the_largest_value_of_the_output() -> None:
    difference, fault = compare({"y": ROWS}, {"y": _with((1, 0), 0.5001)})
    assert (round(difference, 9), fault) == (5e-7, "")
    assert compare({"y": ROWS / 200}, {"y": _with((1, 0), 0.5001) / 200}).fault == ""
    assert compare({"y": np.float32(0.001)}, {"y": np.float32(0.0010009)}).fault == ""  # at least 1


def test_the_largest_difference_is_told_with_its_place_and_both_values() -> None:
    got = _with((0, 0), 1.01, _with((1, 1), 3.5))
    assert compare({"y": ROWS}, {"y": got}).fault == (
        "output 'y' differs at [1, 1], in row 1: the source gives 3, the export 3.5"
    )


@pytest.mark.parametrize(
    ("want", "got", "fault"),
    [
        (ROWS, ROWS.astype(np.float64), "output 'y' is float64[2,2] instead of float32[2,2]"),
        (ROWS, ROWS[:1], "output 'y' is float32[1,2] instead of float32[2,2]"),
        (np.array([7, 8]), np.array([7, 9]), "output 'y' differs at [1], in row 1: the source gives 8, the export 9"),
        (
            np.array([b"a", b"b"], STRING),
            np.array([b"a", b"c"], STRING),
            "output 'y' differs at [1], in row 1: the source gives b'b', the export b'c'",
        ),
        (np.float32(1), np.float32(2), "output 'y' differs at []: the source gives 1, the export 2"),
        (ROWS, _with((0, 1), np.nan), "output 'y' differs at [0, 1], in row 0: the source gives -200, the export nan"),
        (_with((0, 1), np.inf), _with((0, 1), -np.inf), "output 'y' differs at [0, 1], in row 0: the source gives inf"),
    ],
)
def test_what_differs(want: Array, got: Array, fault: str) -> None:
    assert compare({"y": want}, {"y": got}).fault.startswith(fault)


def test_names_of_outputs_are_compared() -> None:
    assert compare({"y": ROWS}, {"z": ROWS}).fault == "the outputs are z instead of y"
    assert same_structure({"y": ROWS}, {"z": ROWS}).fault == "the outputs are z instead of y"


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values_are_equal_to_themselves(special: float) -> None:
    rows = _with((1, 1), special)
    assert compare({"y": rows}, {"y": rows.copy()}) == (0.0, "")


def test_types_have_tolerances_of_their_own() -> None:
    halves, near = np.array([1.0], np.float16), np.array([1.005], np.float16)
    assert compare({"y": halves}, {"y": near}).fault == ""
    brief = np.array([1.0], ml_dtypes.bfloat16)
    assert compare({"y": brief}, {"y": np.array([1.04], ml_dtypes.bfloat16)}).fault == ""
    doubles = np.array([1.0])
    assert compare({"y": doubles}, {"y": doubles + 1e-7}).fault
    complex_ = np.array([1 + 1j], np.complex64)
    assert compare({"y": complex_}, {"y": complex_ + np.complex64(1e-2j)}).fault
    assert compare({"y": complex_}, {"y": complex_ + np.complex64(1e-7j)}).fault == ""


def test_what_moves_with_the_last_digit_of_the_inputs_may_differ_as_much() -> None:
    got, moved = _with((1, 0), 0.5 + 2e-3), _with((1, 0), 0.5 + 4e-4)
    assert compare({"y": ROWS}, {"y": got}).fault
    assert compare({"y": ROWS}, {"y": got}, {"y": moved}).fault == ""
    assert compare({"y": ROWS}, {"y": _with((0, 0), 1.01)}, {"y": moved}).fault  # another place
    places = np.array([3, 5])
    assert compare({"y": places}, {"y": np.array([4, 5])}, {"y": np.array([2, 5])}).fault == ""
    assert compare({"y": places}, {"y": np.array([3, 6])}, {"y": np.array([2, 5])}).fault


def test_only_the_structure_of_random_answers_is_compared() -> None:
    assert same_structure({"y": ROWS}, {"y": ROWS + 1}) == (0.0, "")
    assert same_structure({"y": ROWS}, {"y": ROWS[:1]}).fault == "output 'y' is float32[1,2] instead of float32[2,2]"
