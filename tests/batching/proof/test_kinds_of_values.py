import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.proof.kinds_of_values import kinds_of
from app.core.inference import Array, string_array


def numbers(*values: float, dtype: str = "float32") -> set[object]:
    return kinds_of({"x": np.array(values, dtype)})


def texts(*values: str) -> set[object]:
    return kinds_of({"x": string_array([value.encode() for value in values])})


@pytest.mark.parametrize("other", [0.0, -2.0, 20.0, 0.01, float("nan"), float("inf")])
def test_zero_the_sign_the_size_and_what_is_not_finite_are_kinds_of_their_own(other: float) -> None:
    assert numbers(2.0, other) > numbers(2.0)
    assert numbers(2.0) == numbers(2.0, 2.5, 3.9)


def test_a_small_number_beside_a_large_one_is_a_kind_too() -> None:
    assert numbers(7777.0, 20.0) - numbers(7777.0, 2.0)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64", "float16", "float64", "complex64"])
def test_all_types_of_numbers_have_kinds(dtype: str) -> None:
    assert numbers(0, 1, 100, dtype=dtype) > numbers(1, dtype=dtype)


def test_truth_values_are_kinds() -> None:
    assert kinds_of({"x": np.array([True, False])}) > kinds_of({"x": np.array([True])})


@pytest.mark.parametrize("other", ["", "A", "7", "b!", "b-", "b ", "ü", "a" * 40])
def test_characters_and_lengths_of_texts_are_kinds(other: str) -> None:
    assert texts("ab", other) > texts("ab")
    assert texts("ab") == texts("cd", "ef")


def test_inputs_have_kinds_of_their_own() -> None:
    one = np.array([1.0])
    assert kinds_of({"x": one, "y": one}) > kinds_of({"x": one})


@given(st.lists(st.floats(width=64), max_size=200))
def test_kinds_are_few_whatever_is_sent(values: list[float]) -> None:
    kinds = [kind for _, kind in kinds_of({"x": np.array(values, np.float64)})]  # type: ignore[misc]  # it is a pair
    assert all(kind in {"not finite", 0} or 3500 < abs(kind) < 4700 for kind in kinds)


def test_of_much_a_part_is_looked_at() -> None:
    large: Array = np.zeros(10**6, np.float32)
    large[::2] = 5.0
    assert len(kinds_of({"x": large})) in {1, 2}
    assert len(texts("a" * 10**6 + "!")) == 2
