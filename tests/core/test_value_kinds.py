import ml_dtypes
import numpy as np
import pytest

from app.core.inference import STRING
from app.core.value_kinds import ORDINARY_BELOW, Reach, kinds_of, lies_within

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
