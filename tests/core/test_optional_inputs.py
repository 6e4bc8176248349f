"""Default values, masks and lengths that callers leave out, from the declaration to every protocol's door."""

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.codecs.json.predict_documents import decode_predict
from app.core.errors import InvalidRequest
from app.core.inference import Array, ModelSignature, TensorSpec
from app.core.optional_inputs import with_declared_masks, with_left_out
from app.core.validation import check_inputs
from app.protocols.operations.openapi.model_bodies import predict_body


def signature(**inputs: tuple[Any, tuple[int | None, ...] | None]) -> ModelSignature:
    specs = {name: TensorSpec(name, np.dtype(dtype), shape) for name, (dtype, shape) in inputs.items()}
    return ModelSignature("f", specs, {"y": TensorSpec("y", np.dtype(np.float32), (None,))})


TEXT = signature(
    tokens=(np.int32, (None, None)),
    mask=(np.float32, (None, None)),
    length=(np.int8, (None,)),
    column=("i8", (None, 1)),
)
WANTED = {"mask": "tokens", "length": "tokens", "column": "tokens"}


def declared(one: ModelSignature, wanted: Mapping[str, str]) -> ModelSignature:
    return with_declared_masks({"f": one}, wanted)["f"]


def filled(one: ModelSignature, wanted: Mapping[str, str], **inputs: Array) -> dict[str, Array]:
    return with_left_out(declared(one, wanted), inputs)


def test_a_mask_is_ones_and_a_length_the_true_one() -> None:
    tokens = np.zeros((2, 3), np.int32)
    found = filled(TEXT, WANTED, tokens=tokens)
    assert found["tokens"] is tokens
    assert found["mask"].tolist() == [[1, 1, 1]] * 2
    assert found["length"].tolist() == [3, 3]
    assert found["column"].tolist() == [[3], [3]]
    check_inputs(declared(TEXT, WANTED), found)


def test_what_a_caller_sends_stays() -> None:
    mask = np.array([[1, 0]], np.float32)
    assert filled(TEXT, WANTED, tokens=np.zeros((1, 2), np.int32), mask=mask)["mask"] is mask


def test_a_mask_of_an_image_has_no_colours() -> None:
    image = signature(image=(np.float32, (None, None, None, 3)), seen=(bool, (None, None, None)))
    found = filled(image, {"seen": "image"}, image=np.zeros((1, 2, 4, 3), np.float32))
    assert found["seen"].dtype == bool
    assert found["seen"].shape == (1, 2, 4)
    assert found["seen"].all()


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({"mask": np.zeros((1, 2), np.float32)}, "missing 'tokens'; expected"),
        ({"tokens": np.zeros((1, 2), np.int64)}, "Input 'tokens' has dtype int64; expected int32"),
        ({"tokens": np.zeros(2, np.int32)}, "Input 'tokens' has 1 dimensions; expected int32"),
        ({"tokens": np.zeros((1, 300), np.int32)}, "'tokens' is 300 long, more than its length 'length' .* can hold"),
        ({"tokens": np.zeros((1, 2), np.int32), "other": np.zeros(1)}, "unknown 'other'"),
    ],
)
def test_what_does_not_fit_is_rejected_by_name(inputs: dict[str, Array], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        filled(TEXT, WANTED, **inputs)


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"mask": "words"}, "there is no input 'words'"),
        ({"mask": "tokens", "length": "mask"}, "it describes 'mask', which is itself one of mask_inputs"),
        ({"mask": "length"}, r"float32\[\?,\?\] cannot describe int8\[\?\]"),
        ({"mask": "mask"}, "is itself one of mask_inputs"),
    ],
)
def test_a_declaration_that_fits_nothing_is_told(
    wanted: dict[str, str], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = declared(TEXT, wanted)
    assert found.masks == {name: source for name, source in wanted.items() if source == "tokens"}
    assert len(caplog.messages) == 1
    assert re.search(reason, caplog.text)


@pytest.mark.parametrize(
    "one",
    [
        signature(x=(np.float32, (2, None)), mask=(np.float32, (2, None))),
        signature(x=(np.float32, (None, 4)), mask=(np.float32, (None, 5))),
        signature(x=(np.float32, None), mask=(np.float32, (None, None))),
        signature(x=(np.float32, (None, None)), mask=(object, (None, None))),
    ],
)
def test_so_is_one_that_a_signature_has_no_place_for(one: ModelSignature, caplog: pytest.LogCaptureFixture) -> None:
    assert declared(one, {"mask": "x"}) is one
    assert "must be sent" in caplog.text


def test_what_looks_like_a_mask_is_told_how_to_become_one(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert declared(TEXT, {"length": "tokens", "column": "tokens"}).masks.keys() == {"length", "column"}
    assert caplog.messages == [
        "Input 'mask' of signature 'f' looks like a mask or a length: with mask_inputs mask=tokens "
        "callers may leave it out"
    ]


def test_rows_and_columns_of_json_may_lack_masks() -> None:
    one = declared(TEXT, WANTED)
    for document in (
        {"instances": [[1, 2], [3, 4]]},
        {"instances": [{"tokens": [1, 2]}, {"tokens": [3, 4]}]},
        {"inputs": [[1, 2], [3, 4]]},
        {"inputs": {"tokens": [[1, 2], [3, 4]]}},
    ):
        found, _ = decode_predict(document, one)
        assert {name: array.tolist() for name, array in found.items()} == {"tokens": [[1, 2], [3, 4]]}
    found, _ = decode_predict({"instances": [{"tokens": [1], "mask": [0.0]}]}, one)
    assert found.keys() == {"tokens", "mask"}
    for wrong in (
        {"instances": [{"tokens": [1], "mask": [0.0]}, {"tokens": [1]}]},
        {"instances": [{"mask": [0.0]}]},
        {"inputs": {"mask": [[0.0]]}},
    ):
        with pytest.raises(InvalidRequest, match="tokens"):
            decode_predict(wrong, one)


def test_the_interface_description_does_not_require_them() -> None:
    *_, schema = predict_body("m", {"f": declared(TEXT, WANTED)})["schema"]["anyOf"]
    _, named = schema["properties"]["inputs"]["anyOf"]
    assert named["required"] == ["tokens"]
    assert named["properties"].keys() == TEXT.inputs.keys()


def with_default(value: Any, *shape: int | None, also: Mapping[str, Any] | None = None) -> ModelSignature:
    one = signature(x=(np.float32, (None,)), scale=(np.float32, shape))
    return replace(one, defaults={"scale": np.array(value, np.float32), **(also or {})})


@pytest.mark.parametrize(
    ("value", "shape", "filled_in"),
    [
        ([[7.0, 8.0]], (None, 2), [[7, 8], [7, 8], [7, 8]]),
        ([7.0, 8.0], (None, 2), [[7, 8], [7, 8], [7, 8]]),
        (7.0, (None,), [7, 7, 7]),
        (7.0, (), 7),
        ([7.0], (1,), [7]),
        ([1.0, 2.0, 3.0], (None,), [1, 2, 3]),
    ],
    ids=["a row", "a row without its dimension", "a number for rows", "a scalar", "a fixed size", "rows of its own"],
)
def test_a_default_of_one_row_holds_for_each_row_and_any_other_as_it_is(
    value: Any, shape: tuple[int | None, ...], filled_in: Any
) -> None:
    one = with_default(value, *shape)
    found = with_left_out(one, {"x": np.zeros(3, np.float32)})
    assert found["scale"].tolist() == filled_in
    check_inputs(one, found)
    sent = {"x": np.zeros(3, np.float32), "scale": found["scale"]}
    assert with_left_out(one, sent) is sent


def test_a_default_takes_no_memory_for_each_row() -> None:
    found = with_left_out(with_default([[7.0, 8.0]], None, 2), {"x": np.zeros(1_000_000, np.float32)})["scale"]
    assert (found.shape, found.strides[0]) == ((1_000_000, 2), 0)


def test_a_request_without_any_input_has_the_row_of_the_defaults() -> None:
    one = with_default([7.0], None, also={"x": np.array([1.0], np.float32)})
    assert {name: array.tolist() for name, array in with_left_out(one, {}).items()} == {"x": [1], "scale": [7]}


def test_an_input_without_a_default_must_be_sent_and_unknown_ones_are_rejected() -> None:
    one = with_default([7.0], None)
    for sent in ({"scale": np.zeros(1, np.float32)}, {"x": np.zeros(1, np.float32), "y": np.zeros(1, np.float32)}):
        with pytest.raises(InvalidRequest, match="do not match"):
            with_left_out(one, sent)


def test_rows_and_columns_in_json_may_leave_out_what_has_a_default() -> None:
    one = with_default([7.0], None)
    for document in (
        {"instances": [1, 2]},
        {"instances": [{"x": 1}, {"x": 2}]},
        {"inputs": [1, 2]},
        {"inputs": {"x": [1, 2]}},
    ):
        inputs, _ = decode_predict(document, one)
        assert {name: array.tolist() for name, array in inputs.items()} == {"x": [1, 2]}
    both = with_default([7.0], None, also={"x": np.array([1.0], np.float32)})
    assert decode_predict({"instances": [{}]}, both) == ({}, True)
    assert decode_predict({"inputs": {}}, both) == ({}, False)
    with pytest.raises(InvalidRequest, match="Expecting one of the inputs scale,x in each of the instances"):
        decode_predict({"instances": [{}, {}]}, both)


def test_a_value_without_a_name_is_for_the_one_input_that_there_is() -> None:
    one = replace(signature(x=(np.float32, (None,))), defaults={"x": np.array([1.0], np.float32)})
    assert decode_predict({"instances": [5, 6]}, one)[0]["x"].tolist() == [5, 6]
