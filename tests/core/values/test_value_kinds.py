import ml_dtypes
import numpy as np
import pytest

from app.core.inference import STRING, ModelSignature, TensorSpec
from app.core.values.value_kinds import (
    ORDINARY_BELOW,
    Reach,
    are_finite,
    finite_inputs,
    inputs_beyond,
    is_below,
    kinds_of,
    lies_within,
    not_finite_rows,
)

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TYPES = [
    *(np.dtype(each) for each in ("f2", "f4", "f8", "c8", "c16", "i1", "i4", "i8", "u1", "u8", "?")), BFLOAT16, STRING
]  # fmt: skip


def made(dtype: np.dtype) -> dict[str, np.ndarray]:
    ordinary = np.full((2, 3), b"7", STRING) if dtype == STRING else np.ones((2, 3), dtype)
    return {kind.name: kind.make(ordinary, np.random.default_rng(1)) for kind in kinds_of(dtype)}


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_values_of_a_kind_have_the_shape_and_type_of_ordinary_ones(dtype: np.dtype) -> None:
    for name, values in made(dtype).items():
        assert (name, values.shape, values.dtype) == (name, (2, 3), dtype)


def test_numbers_are_tried_beyond_all_that_is_usual() -> None:
    values = made(np.dtype(np.float32))
    assert np.isnan(values["NaN"]).all()
    assert np.isnan(values["single NaN"]).sum() == 1
    assert (values["infinity"] == np.inf).all()
    assert (values["-infinity"] == -np.inf).all()
    assert 1e29 < np.abs(values["huge"]).max() < 1e31
    assert 0 < np.abs(values["denormal"]).max() < np.finfo(np.float32).tiny
    assert not values["zero"].any()
    assert len(set(np.signbit(values["zero"]).ravel())) == 2
    assert (values["negative"] < 0).all()


def test_whole_numbers_are_tried_at_their_bounds() -> None:
    values = made(np.dtype(np.int32))
    assert set(values["greatest"].ravel()) == {2**31 - 1}
    assert set(values["least"].ravel()) == {-(2**31)}
    assert (values["single least"] == -(2**31)).sum() == (values["single greatest"] == 2**31 - 1).sum() == 1
    assert (values["negative"] < 0).all()
    assert "least" not in made(np.dtype(np.uint8))


def test_strings_are_tried_empty_and_full() -> None:
    values = made(STRING)
    assert set(values["empty string"].ravel()) == {b""}
    assert set(values["full string"][0, 0]) == set(range(256))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_no_value_of_a_kind_lies_beyond_its_reach(dtype: np.dtype) -> None:
    if dtype == STRING:
        return
    for kind in kinds_of(dtype):
        values = np.abs(kind.make(np.ones((50,), dtype), np.random.default_rng(1)).astype(complex))
        if kind.reach is Reach.ORDINARY:
            assert values.max() <= ORDINARY_BELOW
        if kind.reach is Reach.FINITE:
            assert np.isfinite(values).all()


@pytest.mark.parametrize(
    ("dtype", "ordinary", "finite"),
    [(np.float32, False, False), (np.int64, False, True), (np.uint8, True, True), (bool, True, True)],
)
def test_some_types_have_no_values_beyond_a_reach(dtype: type, ordinary: bool, finite: bool) -> None:
    kind = np.dtype(dtype)
    assert [lies_within(kind, reach) for reach in Reach] == [ordinary, finite, True]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, BFLOAT16, np.complex64], ids=str)
@pytest.mark.parametrize("size", [1, 64, 20_000])
def test_one_value_beyond_the_bound_is_found_in_any_place(dtype: np.dtype, size: int) -> None:
    for value, ordinary, finite in ((9000, True, True), (20_000, False, True), (np.inf, False, False), (np.nan,) * 3):
        for sign in (1, -1):
            array = np.full(size, 9000, dtype)
            array[size // 2] = sign * value
            found = is_below(array, Reach.ORDINARY.bound), is_below(array, Reach.FINITE.bound)
            assert found == ((False, False) if np.isnan(value) else (ordinary, finite))


def test_large_numbers_whose_squares_overflow_are_finite() -> None:
    assert is_below(np.full(4, 1e30, np.float32), Reach.FINITE.bound)


def test_bounds_of_integers_are_beyond_what_is_ordinary() -> None:
    for value in (-(2**31), 2**31 - 1):
        assert not is_below(np.array([[1], [value]], np.int32), Reach.ORDINARY.bound)


def test_nothing_is_below_any_bound() -> None:
    assert is_below(np.zeros((0, 3), np.float32), 1.0)
    assert is_below(np.zeros((0, 3), np.int8), 1.0)


def test_only_inputs_that_can_be_beyond_are_looked_at() -> None:
    specs = {name: TensorSpec(name, np.dtype(kind), (None,)) for name, kind in (("f", "f4"), ("i", "i4"), ("u", "u1"))}
    specs |= {"s": TensorSpec("s", STRING, (None,)), "f_1": TensorSpec("f_1", np.dtype("i8"), (None,))}
    signature = ModelSignature("s", specs, {}, ragged={"f": ("f_1",)})
    assert [inputs_beyond(signature, reach) for reach in Reach] == [("f", "i"), ("f",), ()]


def test_numbers_are_looked_at_where_only_finite_ones_share_calls() -> None:
    specs = {name: TensorSpec(name, np.dtype(kind), (None,)) for name, kind in (("f", "f4"), ("i", "i4"))}
    assert finite_inputs(ModelSignature("s", specs, {})) == ()
    names = finite_inputs(ModelSignature("s", specs, {}, finite_only="it loops"))
    assert names == ("f",)
    good, bad = np.full(2, 3e38, np.float32), np.float32([1, -np.inf])
    assert are_finite({"f": good, "i": bad}, names)
    assert not are_finite({"f": bad, "i": good}, names)


def test_rows_that_are_not_finite_in_any_of_the_inputs() -> None:
    inputs = {
        "a": np.array([1, np.nan, 3, 4], np.float32),
        "b": np.array([[0, 1], [0, 1], [0, np.inf], [0, 1]], BFLOAT16),
        "c": np.array([0, 0, 0, -np.inf]),
    }
    assert not_finite_rows(inputs, ("a", "b")).tolist() == [False, True, True, False]
    assert not_finite_rows({"a": np.zeros((2, 0))}, ("a",)).tolist() == [False, False]
