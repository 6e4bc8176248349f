from __future__ import annotations

import contextlib
import tracemalloc
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.msgpack import FORMAT
from app.core.errors import InvalidRequest
from app.core.inference import STRING, InferenceResponse
from tests.support.bodies import from_msgpack, packed, tensor_map
from tests.support.protocol_fakes import signature_of, specs

ONE = signature_of(specs(x=("float32", (None, 2))), {})
TWO = signature_of(specs(a=("float32", (None, 2)), b=("string", (None,))), {})
TEXT = signature_of(specs(x=("string", (None,))), {})
A = np.array([[1, 2], [3, 4]], np.float32)
TENSOR = tensor_map(A)


def read(document: Any, signature: Any) -> Any:
    body = document if isinstance(document, bytes) else packed(document)
    return {name: array.tolist() for name, array in FORMAT.read(body, 1 << 20).inputs(signature).items()}


@pytest.mark.parametrize(
    ("document", "signature", "inputs", "by_row"),
    [
        ({"inputs": {"x": TENSOR}}, ONE, {"x": A.tolist()}, False),
        ({"inputs": TENSOR}, ONE, {"x": A.tolist()}, False),
        ({"instances": TENSOR}, ONE, {"x": A.tolist()}, True),
        ({"inputs": {"x": A.tolist()}}, ONE, {"x": A.tolist()}, False),
        ({"inputs": A.tolist()}, ONE, {"x": A.tolist()}, False),
        ({"instances": A.tolist()}, ONE, {"x": A.tolist()}, True),
        ({"instances": [{"a": [1, 2], "b": b"\xff"}]}, TWO, {"a": [[1, 2]], "b": [b"\xff"]}, True),
        ({"inputs": {"a": TENSOR, "b": ["é", b"\xff"]}}, TWO, {"a": A.tolist(), "b": ["é".encode(), b"\xff"]}, False),
        ({"instances": ["a", b"b", {"b64": "/w=="}]}, TEXT, {"x": [b"a", b"b", b"\xff"]}, True),
        (
            {"inputs": {"dtype": "string", "shape": [2], "data": ["é", b"\xff"]}},
            TEXT,
            {"x": ["é".encode(), b"\xff"]},
            0,
        ),
        ({"inputs": {"dtype": "string", "shape": [0], "data": []}}, TEXT, {"x": []}, False),
        ({"inputs": tensor_map(A.astype(np.int16))}, ONE, {"x": A.tolist()}, False),
        ({"inputs": tensor_map(np.array(3, np.float32))}, ONE, {"x": 3}, False),
    ],
)
def test_requests(document: Any, signature: Any, inputs: Any, by_row: bool) -> None:
    assert read(document, signature) == inputs
    assert FORMAT.read(packed(document), 0).by_row == by_row


def test_the_signature_is_named_as_in_json() -> None:
    assert FORMAT.read(packed({"inputs": TENSOR, "signature_name": "other"}), 0).signature_name == "other"
    assert FORMAT.read(packed({"inputs": TENSOR}), 0).signature_name == ""


def tensor(**changed: Any) -> dict[str, Any]:
    return {"inputs": {**TENSOR, **changed}}


@pytest.mark.parametrize(
    ("document", "signature", "text"),
    [
        (b"", ONE, "MessagePack parse error: No more data to unpack."),
        (b"\xc1", ONE, "MessagePack parse error"),
        (packed({"inputs": TENSOR}) + b"x", ONE, "MessagePack parse error: the document ends at byte 55 of 56"),
        (b"\x91" * 5000, ONE, "MessagePack parse error"),
        (b"\x81\xa1\xff\x01", ONE, "MessagePack parse error: 'utf-8' codec"),
        ({1: 2}, ONE, "MessagePack parse error: int is not allowed for map key"),
        ([1], ONE, "document is [1]; expected a map with 'inputs' or 'instances'"),
        (TENSOR, ONE, "Missing 'inputs' or 'instances' key"),
        ({}, ONE, "Missing 'inputs' or 'instances' key"),
        ({"inputs": TENSOR, "instances": TENSOR}, ONE, "expecting only one of 'inputs' or 'instances'"),
        ({"instances": TENSOR}, TWO, "expecting an object as multiple input tensors required: a,b"),
        ({"instances": [TENSOR]}, ONE, "Failed to process element: 0 of 'instances' list"),
        ({"inputs": {"x": [TENSOR]}}, ONE, "Input 'x': JSON Value:"),
        ({"inputs": {b"x": TENSOR}}, ONE, "Missing named input: x"),
        ({"instances": [{b"x": [1, 2]}]}, ONE, "keys must be equal to: x"),
        ({"signature_name": b"a", "inputs": TENSOR}, ONE, "'signature_name' key must be a string value"),
        ({"inputs": [[b"1", 2]]}, ONE, "Type: Binary is not of expected type: float"),
        ({"inputs": msgpack.ExtType(5, b"12")}, ONE, "extension type 5 is not supported"),
        (tensor(dtype="float128"), ONE, "A tensor has 'dtype' \"float128\"; expected one of float32, float64"),
        (tensor(dtype=["float32"]), ONE, "A tensor has 'dtype' [\"float32\"]"),
        (tensor(dtype="object"), ONE, "A tensor has 'dtype' \"object\""),
        (tensor(shape=[2]), ONE, "A tensor has 16 bytes of data; float32 of shape [2] takes 8"),
        (tensor(shape=[-2, -2]), ONE, "A tensor has 'shape' [-2, -2]; expected a list"),
        (tensor(shape=[2.0, 2]), ONE, "A tensor has 'shape' [2.0, 2]"),
        (tensor(shape=[True, 4]), ONE, "A tensor has 'shape' [true, 4]"),
        (tensor(shape=4), ONE, "A tensor has 'shape' 4"),
        (tensor(shape=[1] * 40), ONE, "at most 31 whole numbers"),
        (tensor(shape=[2**62, 4]), ONE, "A tensor has 16 bytes of data"),
        (tensor(data="text"), ONE, "A tensor of float32 has 'data' \"text\"; expected bytes"),
        (tensor(data=[1, 2, 3, 4]), ONE, "A tensor of float32 has 'data' [1, 2, 3, 4]; expected bytes"),
        (tensor(dtype="string", data=b"ab"), TEXT, "A tensor of strings has 'data' \"b'ab'\"; expected a list"),
        (tensor(dtype="string", data=[b"ab"]), TEXT, "A tensor has 1 strings in 'data'; expected 'shape' [2, 2]"),
        (tensor(dtype="string", data=[b"a", 1]), TEXT, "JSON Value: 1 not formatted correctly"),
        (tensor(dtype="bool", shape=[1], data=b"\x02"), ONE, "A tensor is of type bool but has a byte"),
        ({"inputs": tensor_map(A.astype(np.float64))}, ONE, "Input 'x' has dtype float64, which float32 cannot hold"),
    ],
)
def test_malformed_documents_are_rejected(document: Any, signature: Any, text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(document, signature)
    assert text in str(caught.value)


@given(st.binary())
def test_any_bytes_are_a_document_or_rejected(body: bytes) -> None:
    with contextlib.suppress(InvalidRequest):
        read(body, ONE)


def test_replies_are_by_name_whatever_was_asked() -> None:
    assert FORMAT.reply
    outputs = {
        "y": A.T,
        "s": np.array([b"\xff", b""], STRING),
        "n": np.array(7, np.int64),
        "e": np.zeros((0, 3), np.complex64),
    }
    for by_row in (False, True):
        back = from_msgpack(FORMAT.reply.write(InferenceResponse(outputs, "m", 1, "s"), by_row))
        assert {name: (array.dtype, array.tolist()) for name, array in back.items()} == {
            name: (array.dtype, array.tolist()) for name, array in outputs.items()
        }


def test_arrays_that_claim_more_than_follows_reserve_nothing() -> None:
    """Each gets its memory when its head is read, and a thousand may be open: 16 KB took 14 s and 134 MB."""
    body = (b"\xdd" + len(CLAIMS).to_bytes(4, "big")) * (len(CLAIMS) // 5)
    tracemalloc.start()
    with pytest.raises(InvalidRequest, match="MessagePack parse error"):
        FORMAT.read(body, 1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 * len(body)


CLAIMS = bytes(16 * 1024)
