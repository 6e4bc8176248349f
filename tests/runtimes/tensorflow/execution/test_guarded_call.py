from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest

from app.core.inference import STRING, Array, ModelSignature, TensorSpec
from app.core.value_kinds import Reach
from app.runtimes.tensorflow.execution.guarded_call import GuardedCall, guarded_inputs, is_below

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


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
    assert [guarded_inputs(signature, reach) for reach in Reach] == [("f", "i"), ("f",), ()]


def test_one_value_beyond_sends_the_call_to_plain() -> None:
    def named(name: str) -> object:
        def call(_: Mapping[str, Array]) -> dict[str, Array]:
            return {"who": np.array([name])}

        return call

    call = GuardedCall(named("variant"), named("plain"), ("x", "y"), Reach.FINITE)  # type: ignore[arg-type]
    good, bad = np.ones(2, np.float32), np.float32([1, np.nan])
    assert call({"x": good, "y": good})["who"] == "variant"
    assert call({"x": good, "y": bad})["who"] == call({"x": bad, "y": good})["who"] == "plain"
