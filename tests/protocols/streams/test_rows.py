from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from app.codecs.json.long_arrays import SHORTEST_BYTES
from app.codecs.json.predict_documents import decode_predict
from app.codecs.json.writing import dumps
from app.core.errors import InvalidRequest
from app.core.inference import STRING
from app.protocols.streams.lines import Block
from app.protocols.streams.rows import read_rows, write_errors, write_rows
from tests.support.protocol_fakes import signature_of, specs

ANY = signature_of(specs(x=("float32", None)), specs(y=("float32", None)))
TEXT = signature_of(specs(x=("string", (None,))), specs(y=("string", (None,))))
PAIR = signature_of(specs(a=("int32", (None,)), b=("float32", (None, 2))), specs(y=("float32", (None,))))


def padded(line: bytes) -> bytes:
    """As many bytes that even one such line is long enough to be read without Python objects."""
    return line + b" " * SHORTEST_BYTES


@pytest.mark.parametrize(
    ("lines", "signature"),
    [
        ([b"[1, 2]", b" [3.5,4]\r"], ANY),
        ([b"[[1, 2]]", b"[[3, NaN]]"], ANY),
        ([b"1", b"-2e3"], ANY),
        ([b'"a"', b'{"b64": "/w=="}'], TEXT),
        ([b'{"a": 1, "b": [1, 2]}', b'{"b": [3, 4], "a": 2}'], PAIR),
        ([b'{"x": [1, 2]}', b'{"x": [3, 4]}'], ANY),
    ],
)
def test_lines_are_read_as_instances_are(lines: list[bytes], signature: Any) -> None:
    document = {"instances": [json.loads(line) for line in lines]}
    expected, _ = decode_predict(document, signature)
    for sent in (lines, list(map(padded, lines))):
        inputs = read_rows(sent, signature)
        assert inputs.keys() == expected.keys()
        for name, array in inputs.items():
            assert array.dtype == expected[name].dtype
            np.testing.assert_array_equal(array, expected[name])


#: Coalesced each of these is an array, line by line it is not.
TORN = [
    [b"[1", b"2]"],
    [b"[1", b"2],[3,4]"],
    [b"[1,2],[3", b"4]"],
    [b"[[1],[2", b"3]]"],
    [b"[[1],[2]],[[3]", b"[4]]"],
    [b"[1],[2]", b"[3]"],
    [b"1,2", b"3"],
    [b"1", b"2]"],
    [b"1], [2", b"3"],
    [b'1, "x": 2', b"3"],
]


@pytest.mark.parametrize("lines", TORN, ids=repr)
def test_no_line_has_parts_of_two_rows(lines: list[bytes]) -> None:
    for sent in (lines, list(map(padded, lines)), [*lines, padded(lines[-1])]):
        with pytest.raises(InvalidRequest):
            read_rows(sent, ANY)


@given(st.lists(st.text("[],1 ", max_size=8), min_size=1, max_size=4))
def test_long_lines_are_read_together_only_if_each_can_be_read_alone(texts: list[str]) -> None:
    lines = [padded(text.encode()) for text in texts if text.strip()]
    try:
        together = read_rows(lines, ANY)["x"] if lines else None
    except InvalidRequest:
        return
    if together is not None:
        alone = [json.loads(line) for line in lines]
        assert together.tolist() == alone


@pytest.mark.parametrize("line", [b"1 2", b"[1] x", b"{} {}", b"nope", b"", b"\xff"])
def test_one_value_a_line(line: bytes) -> None:
    with pytest.raises(InvalidRequest, match=r"JSON Parse error: .* at offset: "):
        read_rows([line], ANY)


def test_a_prediction_a_line() -> None:
    pair: dict[str, Any] = {"a": np.array([1.5, np.nan], np.float32), "b": np.array([[1], [2]], np.int64)}
    assert write_rows(pair, 2) == b'{"prediction":{"a":1.5,"b":[1]}}\n{"prediction":{"a":NaN,"b":[2]}}\n'
    ragged = {"y": np.array([1, 2, 3], np.int32), "y_1": np.array([0, 2, 3])}
    assert write_rows(ragged, 2, {"y": ("y_1",)}) == b'{"prediction":[1,2]}\n{"prediction":[3]}\n'
    assert write_rows({"y": np.array([True, False])}, 2) == b'{"prediction":true}\n{"prediction":false}\n'
    assert write_rows({"y": np.array([[0.1, np.inf]], np.float32)}, 1) == b'{"prediction":[0.1,Infinity]}\n'
    assert write_rows({"y_bytes": np.array([b"\xff"], STRING)}, 1) == b'{"prediction":{"b64":"/w=="}}\n'


@given(arrays(np.float32, array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=3)))
def test_rows_of_numbers_are_written_as_one_by_one(array: Any) -> None:
    lines = write_rows({"y": array}, len(array)).splitlines()
    assert lines == [dumps({"prediction": row}) for row in array]


@pytest.mark.parametrize("output", [np.zeros(3), np.zeros(())])
def test_outputs_that_are_no_rows_are_rejected(output: Any) -> None:
    with pytest.raises(InvalidRequest):
        write_rows({"y": output}, 2)


def test_an_error_a_line() -> None:
    assert write_errors(Block(7, [b"1", b"2"]), 'no "x"') == (
        b'{"error":"Line 7: no \\"x\\""}\n{"error":"Line 8: no \\"x\\""}\n'
    )
