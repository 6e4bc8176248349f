from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import InferenceFailed, InvalidRequest, OutOfMemory
from app.inference import STRING, Array, ModelSignature, TensorSpec
from app.warm_up import example_inputs, warm_up

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT32 = np.dtype(np.float32)


def signature(*inputs: TensorSpec, name: str = "serving_default") -> ModelSignature:
    return ModelSignature(name, {spec.name: spec for spec in inputs}, {"y": TensorSpec("y", FLOAT32, (None,))})


class RecordingModel:
    """A LoadedModel that notes its calls and raises the error set for a signature."""

    def __init__(self, *signatures: ModelSignature, errors: Mapping[str, Exception] | None = None) -> None:
        self.signatures = {signature.name: signature for signature in signatures}
        self.errors = errors or {}
        self.calls: list[tuple[str, tuple[int, ...]]] = []

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        assert outputs == ()
        self.calls.append((signature, next(iter(inputs.values())).shape))
        if signature in self.errors:
            raise self.errors[signature]
        return {}

    def close(self) -> None:
        raise AssertionError("warm-up does not own the model")


BATCHED = signature(TensorSpec("x", FLOAT32, (None, 2)))
SCALAR = signature(TensorSpec("a", FLOAT32, ()), name="scalar")
DECODER = signature(TensorSpec("png", STRING, (None,)), name="decoder")


@pytest.mark.parametrize(
    ("shape", "want"),
    [((), ()), ((None,), (5,)), ((None, 3, None), (5, 3, 1)), ((7, None), (7, 1)), ((0,), (0,)), (None, (5,))],
)
def test_free_dimensions_are_rows_first_and_one_inside(
    shape: tuple[int | None, ...] | None, want: tuple[int, ...]
) -> None:
    inputs = example_inputs(signature(TensorSpec("x", FLOAT32, shape)), 5)
    assert inputs["x"].shape == want


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16, np.dtype(bool), np.dtype(np.int8), np.dtype(np.complex64)])
def test_numbers_are_zero(dtype: np.dtype) -> None:
    values = example_inputs(signature(TensorSpec("x", dtype, (None,))), 3)["x"]
    assert values.dtype == dtype
    assert not values.any()


def test_strings_are_empty_bytes() -> None:
    values = example_inputs(signature(TensorSpec("x", STRING, (None, 2))), 1)["x"]
    assert values.dtype == STRING
    assert values.tolist() == [[b"", b""]]


@given(st.lists(st.none() | st.integers(0, 4), max_size=4), st.integers(1, 8))
def test_an_example_fits_its_spec(shape: list[int | None], rows: int) -> None:
    spec = TensorSpec("x", FLOAT32, tuple(shape))
    assert spec.accepts_shape(example_inputs(signature(spec), rows)["x"].shape)


def test_every_size_of_every_signature_runs_and_one_of_those_not_batchable() -> None:
    model = RecordingModel(BATCHED, SCALAR)
    warm_up(model, [1, 4], lambda *_: None)
    assert model.calls == [("serving_default", (1, 2)), ("serving_default", (4, 2)), ("scalar", ())]


def test_progress_counts_to_the_total() -> None:
    reports: list[tuple[int, int, str]] = []
    warm_up(RecordingModel(BATCHED, SCALAR), [1, 4], lambda *report: reports.append(report))
    assert reports == [
        (1, 3, "signature 'serving_default' with 1 row"),
        (2, 3, "signature 'serving_default' with 4 rows"),
        (3, 3, "signature 'scalar' with 1 row"),
    ]


def test_a_signature_that_refuses_the_examples_is_only_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    model = RecordingModel(DECODER, BATCHED, errors={"decoder": InvalidRequest("no image")})
    reports: list[tuple[int, int, str]] = []
    warm_up(model, [2], lambda *report: reports.append(report))
    assert [done for done, _, _ in reports] == [1, 2]
    assert ("serving_default", (2, 2)) in model.calls
    assert "'decoder'" in caplog.text
    assert "no image" in caplog.text


@pytest.mark.parametrize("error", [InferenceFailed("broken"), OutOfMemory("too large")])
def test_any_other_failure_fails_the_load(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        warm_up(RecordingModel(BATCHED, errors={"serving_default": error}), [1], lambda *_: None)
