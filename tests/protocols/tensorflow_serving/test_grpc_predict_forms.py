"""A message of a form that was seen is read as the parser reads it, whatever it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.protobuf.messages import message_class
from app.codecs.protobuf.tensor_protos import decode_tensors
from app.core.inference import Array
from app.protocols.tensorflow_serving.grpc_predict_forms import PredictForms
from app.protocols.tensorflow_serving.grpc_predict_inputs import wanted_outputs
from tests.support.grpc_live import predict_request, spec

Request = message_class("tensorflow.serving.PredictRequest")
DTYPES = [np.float32, np.float64, np.int32, np.int64, np.uint8, np.float16, np.complex64, np.bool_]

arrays = st.builds(
    lambda dtype, shape, seed: (np.random.default_rng(seed).random(shape) * 99).astype(dtype),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 3), min_size=0, max_size=3),
    st.integers(0, 9),
)
requests = st.builds(
    lambda inputs, name, wanted, as_content: predict_request(inputs, spec(name), wanted, as_content),
    st.dictionaries(st.sampled_from(["x", "y", "long name"]), arrays, max_size=3),
    st.sampled_from(["m", "model"]),
    st.lists(st.sampled_from(["a", "b"]), max_size=2, unique=True),
    st.booleans(),
)


def parsed(content: bytes) -> tuple[Any, dict[str, Array]]:
    message = Request.FromString(content)
    return message, decode_tensors(message.inputs, 2**20)


def learnt(*contents: bytes) -> PredictForms:
    forms = PredictForms()
    for content in contents:
        message, inputs = parsed(content)
        forms.learn(content, message, wanted_outputs(message), inputs)
    return forms


def check_is_as_parsed(forms: PredictForms, content: bytes) -> bool:
    """Whether it has a form that was seen; that reads what the parser does."""
    form = forms.find(content)
    if form is None:
        return False
    message, inputs = parsed(content)
    assert form.spec == message.model_spec
    assert form.outputs == wanted_outputs(message)
    got = form.read(content)
    assert got.keys() == inputs.keys()
    for name, array in inputs.items():
        assert (got[name].dtype, got[name].shape, got[name].tobytes()) == (array.dtype, array.shape, array.tobytes())
    return True


@given(st.lists(requests, min_size=1, max_size=4), requests, st.data())
def test_messages_with_a_form_are_read_as_parsed(known: list[Any], other: Any, data: st.DataObject) -> None:
    contents = [each.SerializeToString() for each in known]
    forms = learnt(*contents)
    for content in [*contents, other.SerializeToString()]:
        check_is_as_parsed(forms, content)
        if content:
            changed = bytearray(content)
            changed[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
            try:
                parsed(bytes(changed))
            except Exception:  # what does not parse has no form that was seen
                assert forms.find(bytes(changed)) is None
            else:
                check_is_as_parsed(forms, bytes(changed))


@pytest.mark.parametrize("as_content", [True, False])
def test_other_numbers_have_the_same_form_and_other_shapes_another(as_content: bool) -> None:
    def content(array: Array) -> bytes:
        serialized: bytes = predict_request({"x": array}, wanted=["y"], as_content=as_content).SerializeToString()
        return serialized

    forms = learnt(content(np.zeros((2, 3), np.float32)))
    assert check_is_as_parsed(forms, content(np.arange(6, dtype=np.float32).reshape(2, 3)))
    assert forms.find(content(np.zeros((3, 2), np.float32))) is None
    assert forms.find(content(np.zeros((2, 3), np.int32))) is None


def test_messages_of_one_form_are_read_together() -> None:
    parts = [np.random.default_rng(seed).random((2, 3), np.float32) for seed in range(3)]
    contents = [predict_request({"x": part, "y": -part}).SerializeToString() for part in parts]
    form = learnt(contents[0]).find(contents[1])
    assert form is not None
    together = form.read_together(contents)
    np.testing.assert_array_equal(together["x"], np.concatenate(parts))
    np.testing.assert_array_equal(together["y"], -np.concatenate(parts))


@pytest.mark.parametrize(
    "content",
    [
        predict_request({"x": np.zeros((1, 2), np.bool_)}).SerializeToString(),
        predict_request({"x": np.array([b"a"], object)}).SerializeToString(),
        predict_request({"x": np.zeros(2, np.float32)}).SerializeToString() + b"\xc0\x0c\x01",  # an unknown field
        predict_request({"x": np.zeros(2, np.float32)}).SerializeToString() * 2,  # every field twice
        predict_request({}).SerializeToString(),
    ],
)
def test_what_is_not_plain_has_no_form(content: bytes) -> None:
    assert learnt(content).find(content) is None


def test_few_forms_are_remembered() -> None:
    contents = [predict_request({"x": np.zeros((1, size), np.uint8)}).SerializeToString() for size in range(1, 1200)]
    forms = learnt(*contents)
    assert len(forms._forms) <= 1024
    assert forms.find(contents[-1]) is not None
