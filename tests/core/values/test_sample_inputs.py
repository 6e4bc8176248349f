import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.inference import STRING, ModelSignature, SparseParts, TensorSpec
from app.core.values.sample_inputs import random_inputs, zero_inputs

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT32 = np.dtype(np.float32)
DTYPES = [FLOAT32, BFLOAT16, np.dtype(np.complex64), np.dtype(bool), np.dtype(np.uint8), np.dtype(np.int64), STRING]


def signature(*inputs: TensorSpec, name: str = "serving_default") -> ModelSignature:
    return ModelSignature(name, {spec.name: spec for spec in inputs}, {"y": TensorSpec("y", FLOAT32, (None,))})


@pytest.mark.parametrize(
    ("shape", "want"),
    [((), ()), ((None,), (5,)), ((None, 3, None), (5, 3, 1)), ((7, None), (7, 1)), ((0,), (0,)), (None, (5,))],
)
def test_free_dimensions_are_rows_first_and_one_inside(
    shape: tuple[int | None, ...] | None, want: tuple[int, ...]
) -> None:
    inputs = zero_inputs(signature(TensorSpec("x", FLOAT32, shape)), 5)
    assert inputs["x"].shape == want


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16, np.dtype(bool), np.dtype(np.int8), np.dtype(np.complex64)])
def test_numbers_are_zero(dtype: np.dtype) -> None:
    values = zero_inputs(signature(TensorSpec("x", dtype, (None,))), 3)["x"]
    assert values.dtype == dtype
    assert not values.any()


def test_strings_are_empty_bytes() -> None:
    values = zero_inputs(signature(TensorSpec("x", STRING, (None, 2))), 1)["x"]
    assert values.dtype == STRING
    assert values.tolist() == [[b"", b""]]


@given(st.lists(st.none() | st.integers(0, 4), max_size=4), st.integers(1, 8))
def test_an_example_fits_its_spec(shape: list[int | None], rows: int) -> None:
    spec = TensorSpec("x", FLOAT32, tuple(shape))
    assert spec.accepts_shape(zero_inputs(signature(spec), rows)["x"].shape)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_random_values_differ_are_modest_and_come_back(dtype: np.dtype) -> None:
    wanted = signature(TensorSpec("x", dtype, (None, 50)))
    values = random_inputs(wanted, 3)["x"]
    assert values.dtype == dtype
    assert values.shape == (3, 50)
    assert len(set(values.ravel().tolist())) > 1
    assert all(0 <= abs(complex(int(value) if dtype == STRING else value)) < 4 for value in values.ravel().tolist())
    assert random_inputs(wanted, 3)["x"].tolist() == values.tolist()


def test_random_strings_are_bytes() -> None:
    assert type(random_inputs(signature(TensorSpec("x", STRING, (None,))), 1)["x"][0]) is bytes


def test_a_random_scalar_has_no_dimensions() -> None:
    values = random_inputs(signature(TensorSpec("x", STRING, ()), TensorSpec("n", FLOAT32, ())), 1)
    assert {name: value.shape for name, value in values.items()} == {"x": (), "n": ()}


def test_ragged_rows_have_one_value_each() -> None:
    specs = {
        "x": TensorSpec("x", np.dtype(np.float32), (None,)),
        "x_1": TensorSpec("x_1", np.dtype(np.int64), (None,)),
        "x_2": TensorSpec("x_2", np.dtype(np.int32), (None,)),
    }
    signature = ModelSignature("f", specs, {}, ragged={"x": ("x_1", "x_2")})
    for examples in (zero_inputs, random_inputs):
        inputs = examples(signature, 3)
        assert inputs["x"].shape == (3,)
        assert inputs["x_1"].tolist() == inputs["x_2"].tolist() == [0, 1, 2, 3]
        assert (inputs["x_1"].dtype, inputs["x_2"].dtype) == (np.int64, np.int32)


def test_each_row_of_a_sparse_tensor_has_one_value() -> None:
    specs = {
        "x": TensorSpec("x", np.dtype(np.int64), (None, 2)),
        "x_1": TensorSpec("x_1", np.dtype(np.float32), (None,)),
        "x_2": TensorSpec("x_2", np.dtype(np.int64), (2,)),
    }
    signature = ModelSignature("f", specs, {}, sparse=(SparseParts("x", "x_1", "x_2"),))
    for examples in (zero_inputs, random_inputs):
        inputs = examples(signature, 3)
        assert inputs["x"].tolist() == [[0, 0], [1, 0], [2, 0]]
        assert inputs["x_1"].shape == (3,)
        assert inputs["x_2"].tolist() == [3, 1]


def test_a_sparse_tensor_has_its_declared_sizes() -> None:
    specs = {
        "x": TensorSpec("x", np.dtype(np.int64), (None, 3)),
        "x_1": TensorSpec("x_1", np.dtype(np.float32), (None,)),
        "x_2": TensorSpec("x_2", np.dtype(np.int64), (3,)),
    }
    sparse = (SparseParts("x", "x_1", "x_2"),)
    signature = ModelSignature("f", specs, {}, sparse=sparse, sparse_sizes={"x": (100, None)})
    assert zero_inputs(signature, 2, 8)["x_2"].tolist() == [2, 100, 8]
    assert zero_inputs(signature, 2, 8)["x"].tolist() == [[0, 0, 0], [1, 0, 0]]
