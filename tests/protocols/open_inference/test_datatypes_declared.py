from __future__ import annotations

import numpy as np
import pytest

from app.core.errors import InvalidRequest, Unsupported
from app.core.inference import TensorSpec
from app.protocols.open_inference.datatypes import MAX_RANK, checked_shape, declared_input
from tests.support.protocol_fakes import signature_of, specs

SIGNATURE = signature_of(specs(x=("float32", (None, 2)), c=("complex64", (None,))), specs(y=("float32", None)))
X = SIGNATURE.inputs["x"]


def test_an_input_is_looked_up():
    assert declared_input("x", "FP32", SIGNATURE) is X


@pytest.mark.parametrize(
    ("name", "datatype", "text"),
    [
        ("z", "FP32", "Unknown input 'z'; signature 'x' has 'c', 'x'"),
        ("x", "FP64", "Input 'x' has datatype 'FP64'; expected 'FP32'"),
        ("x", "", "Input 'x' has datatype ''; expected 'FP32'"),
    ],
)
def test_an_input_that_is_not_the_signatures_is_rejected(name, datatype, text):
    with pytest.raises(InvalidRequest) as error:
        declared_input(name, datatype, SIGNATURE)
    assert str(error.value) == text


def test_an_input_of_a_type_that_the_protocol_lacks_is_not_supported():
    with pytest.raises(Unsupported):
        declared_input("c", "COMPLEX64", SIGNATURE)


@pytest.mark.parametrize("shape", [[], [0], [2, 3], [0, 2**40], [1] * MAX_RANK])
def test_shapes(shape):
    checked = checked_shape(X, shape)
    assert checked == tuple(shape)
    if 0 in shape or len(shape) == MAX_RANK:
        assert np.empty(0 if 0 in shape else 1, np.float32).reshape(checked).shape == checked


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ([-1, 2], "has a dimension '-1'"),
        ([1.0], "has a dimension '1.0'"),
        ([True], "has a dimension 'True'"),
        (["1"], "has a dimension '1'"),
        ([None], "expected whole numbers from 0"),
        ([2**62, 4], "no tensor is that large"),
        ([0, 2**62, 2**62], "no tensor is that large"),
        ([10**1000], "no tensor is that large"),
        ([1] * (MAX_RANK + 1), "has 32 dimensions; expected 31 at most"),
    ],
)
def test_malformed_shapes_are_rejected(shape, text):
    with pytest.raises(InvalidRequest) as error:
        checked_shape(TensorSpec("x", np.dtype(np.float32), None), shape)
    assert "Input 'x'" in str(error.value)
    assert text in str(error.value)
    assert len(str(error.value)) < 400
