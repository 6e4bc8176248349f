import ml_dtypes
import numpy as np
import pytest

from app.core.agreement import agree, moved_inputs
from app.core.inference import Array


def test_equal_outputs_agree_whatever_their_types() -> None:
    for values in (np.array([b"a"], object), np.array([True]), np.array([2**62]), np.array(7.0), np.zeros([0, 3])):
        assert agree({"y": values}, {"y": values.copy()})


@pytest.mark.parametrize(
    ("dtype", "within", "beyond"),
    [
        (ml_dtypes.bfloat16, 2e-2, 15e-2),
        (np.float16, 2e-3, 15e-3),
        (np.float32, 5e-5, 3e-4),
        (np.float64, 5e-11, 3e-10),
        (np.complex64, 5e-5, 3e-4),
        (np.complex128, 5e-11, 3e-10),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_may_differ_by_the_tolerance_of_their_type_and_no_more(
    dtype: type, within: float, beyond: float, sign: int
) -> None:
    expected = np.array([1.0, 100.0], dtype)
    assert agree({"y": expected}, {"y": np.asarray(expected * (1 + sign * within), dtype)})
    assert not agree({"y": expected}, {"y": np.asarray(expected * (1 + sign * beyond), dtype)})


def test_a_small_value_beside_a_great_one_may_differ_as_the_great_one() -> None:
    expected = np.array([1e-6, 1.0], np.float32)
    assert agree({"y": expected}, {"y": np.array([2e-6, 1.0], np.float32)})
    assert not agree({"y": expected[:1]}, {"y": np.array([2e-6], np.float32)})


def test_nan_and_infinity_agree_with_themselves_only() -> None:
    expected = np.array([np.nan, np.inf, 1], np.float32)
    assert agree({"y": expected}, {"y": expected.copy()})
    for wrong in ([0, np.inf, 1], [np.nan, -np.inf, 1], [np.nan, 1e30, 1], [np.nan, np.inf, np.nan]):
        assert not agree({"y": expected}, {"y": np.array(wrong, np.float32)})


@pytest.mark.parametrize(
    "wrong",
    [
        {"y": np.array([1, 2], np.int64)},
        {"y": np.array([[1, 2]], np.int32)},
        {"y": np.array([[1], [2]], np.int32)},
        {"y": np.array([1, 3], np.int32)},
        {"y": np.array([1], np.int32)},
        {"z": np.array([1, 2], np.int32)},
        {},
    ],
    ids=str,
)
def test_another_name_type_shape_or_whole_number_disagrees(wrong: dict[str, Array]) -> None:
    assert not agree({"y": np.array([1, 2], np.int32)}, wrong)


def test_a_row_that_stands_for_all_disagrees() -> None:
    assert not agree({"y": np.float32([[1, 2], [1, 2]])}, {"y": np.float32([1, 2])})
    assert not agree({"y": np.float32([1, 2])}, {"y": np.float32([[1, 2]])})


def test_one_output_that_disagrees_is_enough() -> None:
    expected = {"y": np.float32([1, 2]), "z": np.float32([3])}
    assert agree(expected, {"z": np.float32([3]), "y": np.float32([1, 2])})
    assert not agree(expected, {"y": np.float32([1, 2]), "z": np.float32([4])})
    assert not agree(expected, {"y": np.float32([2, 2]), "z": np.float32([3])})


def test_complex_numbers_are_compared_in_both_parts() -> None:
    expected = {"y": np.complex64([1 + 2j, 3])}
    assert agree(expected, {"y": np.complex64([1 + 2j, 3])})
    assert not agree(expected, {"y": np.complex64([1 - 2j, 3])})
    assert not agree(expected, {"y": np.complex64([2 + 2j, 3])})


def test_beside_no_finite_number_none_may_differ() -> None:
    assert agree({"y": np.float32([np.nan, np.inf])}, {"y": np.float32([np.nan, np.inf])})
    assert not agree({"y": np.float32([0.0])}, {"y": np.float32([1e-6])})
    assert agree({"y": np.zeros([0, 3], np.float32)}, {"y": np.zeros([0, 3], np.float32)})


def test_strings_agree_byte_by_byte() -> None:
    assert not agree({"y": np.array([b"a"], object)}, {"y": np.array([b"b"], object)})


def test_one_may_ask_for_more() -> None:
    expected, actual = {"y": np.float32([1.0, 2.0])}, {"y": np.float32([1.0, 2.0001])}
    assert agree(expected, actual)
    assert not agree(expected, actual, {"float32": 1e-5})


def test_a_difference_of_just_the_tolerance_is_within_it() -> None:
    """Half of the value, and half of the greatest."""
    expected = {"y": np.array([1.0])}
    assert agree(expected, {"y": np.array([2.0])}, {"float64": 0.5})
    assert not agree(expected, {"y": np.array([2.0 + 1e-15])}, {"float64": 0.5})


def test_a_thousandth_is_no_rounding() -> None:
    """The tolerances themselves: at a hundredth a wrong variant would pass."""
    expected = {"y": np.float32([1.0, 2.0])}
    assert not agree(expected, {"y": np.float32([1.001, 2.0])})
    assert agree(expected, {"y": np.float32([1.00001, 2.0])})
    assert not agree({"y": np.float64([1.0])}, {"y": np.float64([1 + 1e-8])})


def test_numbers_too_small_to_be_normal_may_count_as_zero() -> None:
    assert agree({"y": np.float32([1e-40, 0.0])}, {"y": np.float32([0.0, -1e-40])})
    assert not agree({"y": np.float32([1e-37])}, {"y": np.float32([0.0])})


def test_what_moves_with_the_last_digit_of_the_inputs_may_differ() -> None:
    """The mean of huge numbers, taken from them, is what rounding left of it."""
    expected, moved = {"y": np.float32([1.0, 1.0, 1.0])}, {"y": np.float32([1.0, 1.5, np.nan])}
    assert agree(expected, {"y": np.float32([1.0, 4.0, np.inf])}, moved=moved)
    assert not agree(expected, {"y": np.float32([1.0, 9.0, np.inf])}, moved=moved)
    assert not agree(expected, {"y": np.float32([1.1, 1.0, 1.0])}, moved=moved)
    places = {"y": np.array([3, 4])}
    assert agree(places, {"y": np.array([3, 5])}, moved={"y": np.array([3, 9])})
    assert not agree(places, {"y": np.array([2, 4])}, moved={"y": np.array([3, 9])})


def test_nan_is_no_rounding_where_nothing_moves() -> None:
    expected = {"y": np.float32([np.nan, 1.0, np.inf])}
    assert not agree(expected, {"y": np.float32([-np.inf, 1.0, np.inf])}, moved=expected)
    assert agree(expected, expected, moved=expected)


def test_inputs_move_up_and_down_by_one_digit_each_and_huge_ones_without_a_warning() -> None:
    random = np.random.default_rng(1)
    eps, tiny, huge = (np.finfo(np.float32).eps, np.finfo(np.float32).tiny, np.finfo(np.float32).max)
    moved = moved_inputs({"x": np.ones(100, np.float32), "y": np.full(100, huge), "z": np.full(100, tiny)}, random)
    assert set(moved["x"].tolist()) == {float(np.float32(1 - eps)), float(np.float32(1 + eps))}
    assert np.isinf(moved["y"]).any()
    assert (moved["z"] > 0).any()


def test_inputs_move_by_their_last_digit() -> None:
    inputs = {"x": np.float32([1.0, np.nan, np.inf, 1e-40, 0.0]), "n": np.array([7]), "s": np.array([b"a"], object)}
    moved = moved_inputs(inputs, np.random.default_rng(1))
    assert 0 < abs(float(moved["x"][0]) - 1.0) < 2e-7
    assert np.array_equal(moved["x"][1:], np.float32([np.nan, np.inf, 0, 0]), equal_nan=True)
    assert moved["x"].dtype == np.float32
    assert moved["n"] is inputs["n"]
    assert moved["s"] is inputs["s"]


def test_a_difference_is_found_in_every_block_of_a_large_answer() -> None:
    """Answers are compared in blocks, with one scale for all."""
    expected = np.ones(600_000, np.float32)
    expected[0] = 1000.0
    for place in (1, 300_000, 599_999):
        actual = expected.copy()
        actual[place] = 1.05
        assert agree({"y": expected}, {"y": actual})
        actual[place] = 1.5
        assert not agree({"y": expected}, {"y": actual})


def test_small_numbers_far_behind_a_block_without_any_number_may_not_differ() -> None:
    expected = np.full(300_000, np.nan, np.float32)
    expected[-1] = 1e-6
    actual = expected.copy()
    assert agree({"y": expected}, {"y": actual})
    actual[-1] = 2e-6
    assert not agree({"y": expected}, {"y": actual})


@pytest.mark.parametrize("moved", [np.inf, -np.inf, np.nan])
def test_a_number_that_moves_out_of_all_bounds_may_be_anything_and_its_neighbours_may_not(moved: float) -> None:
    expected, other = {"y": np.float32([1.0, 1.0])}, {"y": np.float32([moved, 1.0])}
    for value in (7.0, np.inf, -np.inf, np.nan):
        assert agree(expected, {"y": np.float32([value, 1.0])}, moved=other)
        assert not agree(expected, {"y": np.float32([value, 2.0])}, moved=other)


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_what_is_no_number_may_be_anything_where_it_moves(special: float) -> None:
    expected, other = {"y": np.float32([special, 1.0])}, {"y": np.float32([1.0, 1.0])}
    assert agree(expected, {"y": np.float32([5.0, 1.0])}, moved=other)
    assert not agree(expected, {"y": np.float32([5.0, 1.0])}, moved=expected)
