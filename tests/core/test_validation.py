import numpy as np
import pytest

from app.core.errors import InvalidRequest
from app.core.inference import STRING, Array, ModelSignature, TensorSpec
from app.core.validation import check_inputs, check_outputs, count_rows, shapes_fit
from tests.support.fakes import FakeLoadedModel

FLOAT = np.dtype(np.float32)
SIGNATURE = ModelSignature(
    "serving_default",
    {"x": TensorSpec("x", FLOAT, (None, 2)), "s": TensorSpec("s", STRING, None)},
    {"y": TensorSpec("y", FLOAT, (None,))},
)


def x(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


GOOD = {"x": x(3, 2), "s": np.array([b"a"], object)}


def test_what_fits_passes() -> None:
    check_inputs(SIGNATURE, GOOD)
    check_outputs(SIGNATURE, ("y",))


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({}, "Inputs do not match signature 'serving_default': missing 's', 'x'; expected 's', 'x'"),
        ({**GOOD, "z": x(1)}, "unknown 'z'; expected 's', 'x'"),
        ({"x": x(3, 2), "t": x(1)}, "missing 's'; unknown 't'"),
        ({**GOOD, "x": np.zeros((3, 2), np.float64)}, "Input 'x' has dtype float64; expected float32[?,2]"),
        ({**GOOD, "s": x(1)}, "Input 's' has dtype float32; expected string<unknown rank>"),
        ({**GOOD, "x": x(3, 3)}, "Input 'x' has shape [3,3]; expected [?,2]"),
        ({**GOOD, "x": x(2)}, "Input 'x' has shape [2]; expected [?,2]"),
    ],
)
def test_what_does_not_fit_is_named(inputs: dict[str, Array], text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_inputs(SIGNATURE, inputs)
    assert text in str(caught.value)


def test_an_unknown_output_is_named() -> None:
    with pytest.raises(InvalidRequest, match="has no output 'w'; it has 'y'"):
        check_outputs(SIGNATURE, ("y", "w"))


def test_inputs_must_have_equally_many_rows() -> None:
    assert count_rows(SIGNATURE, {"x": x(3, 2)}) == 3
    with pytest.raises(InvalidRequest, match="'x' has 3, 's' has 1"):
        count_rows(SIGNATURE, GOOD)


@pytest.mark.parametrize(
    ("signature", "shapes", "fit"),
    [
        ("serving_default", [(0, 2)], True),
        ("serving_default", [(1, 3)], False),
        ("serving_default", [()], False),
        ("total", [()], True),
        ("total", [(1,)], False),
        ("uneven", [(4, 2)], True),
        ("pair", [(2, 2), (2, 2)], True),
        ("pair", [(2, 2), (3, 2)], False),
    ],
)
def test_shapes_fit_or_not(signature: str, shapes: list[tuple[int, ...]], fit: bool) -> None:
    found = FakeLoadedModel().signatures[signature]
    inputs = {name: np.zeros(shape, np.float32) for name, shape in zip(found.inputs, shapes, strict=True)}
    assert shapes_fit(found, inputs) is fit
