"""Long arrays are read in another way than the rest, and nobody can tell: same arrays, same errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.codecs.json import long_arrays as json_cut
from app.codecs.json import predict_documents
from app.codecs.json.long_arrays import SHORTEST_BYTES, Numbers, parse_long_arrays
from app.core.errors import ServingError
from app.core.inference import Array, ModelSignature, TensorSpec
from app.protocols.open_inference.datatypes import checked_shape
from app.protocols.open_inference.documents.json_documents import (
    decode_data,
    list_field,
    named_objects,
    parameters_field,
    parse,
    text_field,
)

DTYPES = [
    *(np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *(np.dtype(name) for name in ("float16", "float32", "float64", "bool", "object", "complex64")),
    *(np.dtype(kind) for kind in (ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.float8_e4m3fn)),
]

NUMBERS = (
    "0", "-0", "0.0", "-0.0", "1", "-1", "7", "8", "127", "128", "-129", "255", "256", "65504", "65520", "1.0", "1e0",
    "0.1", "-2.5E+3", "1e-7", "0.30000001192092896", "3.4028235e38", "3.4028236e38", "1e39", "1e308", "1e309", "-1e999",
    "5e-324", "2e-324", "1e-400", "9007199254740993", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "18446744073709551615", "18446744073709551616", "1" + "0" * 40,
    "1.00000005960464477539062500000000000000001", "8.589973e9", "0." + "0" * 60 + "1" + "7" * 800,
)  # fmt: skip
SMALL = ("0", "1", "7", "-1", "2.5", "1e0")
OTHERS = (
    "true", "false", "null", '"a"', '""', '"\\u00e9"', '"[1,2]"', '"{"', "{}", '{"b64":"YQ=="}', '{"b64":[1]}',
    '{"x":1}', "NaN", "Infinity", "-Infinity", "Inf", "-Inf", "-NaN", "[]", "[1]", "[[1]]", "01", "1.", ".5", "+1",
    "--1", "1e", "0x1", "tru", "1 2", "1]2", "1[2", "1,", "", "]", "[", "}", "{", ":", "'", '"', "\\", "\0", "é",
    '["\\u00000"]', '"\\u00000"',
)  # fmt: skip
BLANKS = ("", "", "", " ", "\n", "\t", "\r\n  ", "\v", "\xa0")
BLANK = st.sampled_from(BLANKS)


@pytest.fixture(autouse=True)
def _arrays_of_any_length_are_cut_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_cut, "SHORTEST_BYTES", 0)


@st.composite
def values(draw: st.DrawFn) -> str:
    """Mostly an array with a shape; then one or two of its tokens may become others."""
    shape = draw(st.lists(st.integers(1, 3), max_size=4))
    numbers = draw(st.lists(st.sampled_from(draw(st.sampled_from((SMALL, SMALL, NUMBERS)))), min_size=1, max_size=2))
    blank = draw(st.sampled_from(BLANKS[:6])) if draw(st.booleans()) else ""
    tokens = list(nested(shape, numbers, blank))
    for _ in range(draw(st.sampled_from((0, 0, 0, 0, 0, 1, 2)))):
        at = draw(st.integers(0, len(tokens) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                tokens[at] = draw(st.sampled_from(NUMBERS + OTHERS))
            case 1:
                tokens[at] = ""
            case 2:
                tokens.insert(at, draw(st.sampled_from((*NUMBERS, *OTHERS, ",", *BLANKS))))
            case 3:
                other = draw(st.integers(0, len(tokens) - 1))
                tokens[at], tokens[other] = tokens[other], tokens[at]
    return "".join(tokens)


def nested(shape: list[int], numbers: list[str], blank: str, start: int = 0) -> Iterator[str]:
    if not shape:
        yield numbers[start % len(numbers)]
        return
    yield "["
    for index in range(shape[0]):
        if index:
            yield from (",", blank)
        yield from nested(shape[1:], numbers, blank, start + index)
    yield "]"


def mostly(usual: st.SearchStrategy[str], other: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.integers(0, 4).flatmap(lambda one: usual if one else other)


def listed(elements: st.SearchStrategy[str], marks: str, most: int) -> st.SearchStrategy[str]:
    return st.lists(elements, max_size=most).map(lambda each: marks[0] + ",".join(each) + marks[1])


VALUE = values()
NAME = mostly(st.just("x"), st.sampled_from(["y", "b64", "instances", "é", "\\u0078", "x\\n", "\0", ""]))
FIELD = st.builds('"{}":{}'.format, NAME, VALUE)
OBJECT = mostly(FIELD.map("{{{}}}".format), listed(FIELD, "{}", 3))
ROWS = mostly(listed(OBJECT, "[]", 3), listed(st.one_of(OBJECT, VALUE), "[]", 3))
CONTENT = st.one_of(VALUE, VALUE, OBJECT, ROWS)
MAIN = st.builds('"{}"{}:{}{}'.format, st.sampled_from(["instances", "inputs"]), BLANK, CONTENT, BLANK)
SIGNATURE = st.sampled_from(['"s"', '""', "1", "[1,2]", '"\\"["']).map('"signature_name":{}'.format)
FIELDS = mostly(MAIN, st.lists(st.one_of(MAIN, SIGNATURE, FIELD), max_size=3).map(",".join))
FRAME = mostly(
    st.just("{%s}"),
    st.sampled_from(
        [" {%s}\n", "\ufeff{%s}", "{%s} x", "{%s}}", "{%s", "[{%s}]", "%s", "{%s,}", "{%s}\0", "{%s}\udcff"]
    ),
)
DOCUMENT = st.builds(lambda frame, fields: encode(frame.replace("%s", fields)), FRAME, FIELDS)
DTYPE = st.one_of(st.sampled_from(DTYPES), st.sampled_from([np.dtype(np.float32), np.dtype(np.int32)]))


def encode(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def signature(dtype: np.dtype[Any]) -> ModelSignature:
    return ModelSignature("s", {"x": TensorSpec("x", dtype, None)}, {})


def read_v1(body: bytes, dtype: np.dtype[Any]) -> object:
    question = predict_documents.read(body, len(body))
    return question.signature_name, question.by_row, question.inputs(signature(dtype))["x"]


def read_v2(body: bytes, dtype: np.dtype[Any]) -> object:
    """What open_inference_rest_request.py does with a document."""
    document = parse(body)
    found: list[object] = [parameters_field(document), text_field(document, "id")]
    for name, each in named_objects(document, "inputs"):
        found += [name, parameters_field(each), text_field(each, "datatype")]
        if each.get("data") is not None:
            spec = TensorSpec("x", dtype, None)
            found.append(decode_data(each["data"], spec, checked_shape(spec, list_field(each, "shape"))))
    return found


def outcome(read: Callable[[bytes, np.dtype[Any]], object], body: bytes, dtype: np.dtype[Any]) -> object:
    try:
        return comparable(read(body, dtype))
    except ServingError as error:
        return type(error), str(error)


def comparable(value: Any) -> object:
    if isinstance(value, np.ndarray):
        plain = value.tolist() if value.dtype == object else np.ascontiguousarray(value).tobytes()
        return value.dtype, value.shape, plain
    if isinstance(value, list | tuple):
        return [comparable(each) for each in value]
    return value


def check_the_same(read: Callable[[bytes, np.dtype[Any]], object], body: bytes, dtype: np.dtype[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_cut, "_long_arrays", lambda _: [])
        expected = outcome(read, body, dtype)
    assert outcome(read, body, dtype) == expected


@settings(max_examples=500)
@given(DOCUMENT, DTYPE)
@example(b'{"instances":[1,[2],3]}', np.dtype("float32"))
@example(b'{"instances":[[1,2],3,[4]]}', np.dtype("float32"))
@example(b'{"instances":[[[1,2],[3,4]],[[5,6]],[7,8]]}', np.dtype("float32"))
@example(b'{"instances":[[1,2,[3]],4]}', np.dtype("int32"))
@example(b'{"instances":[[1],[]]}', np.dtype("float32"))
@example(b'{"instances":[[],[]]}', np.dtype("float32"))
@example(b'{"inputs":[1],"inputs":[2]}', np.dtype("float32"))
@example(b'{"inputs":{"x":[1],"x":[2]}}', np.dtype("float32"))
@example(b'{"instances":[{"x":[1,2]},{"x":[3]}]}', np.dtype("float32"))
@example(b'{"instances":[{"x":[1,2]},{"x":3}]}', np.dtype("float32"))
@example(b'{"instances":[{"x":[1,2]},{"x":[3,true]}]}', np.dtype("float32"))
@example(b'{"instances":[ ]}', np.dtype("float32"))
@example(b'{[1,2]:"x","inputs":1}', np.dtype("float32"))
@example(b'{"inputs":[9007199254740993,36028799166447617]}', np.dtype("float32"))
def test_tensorflow_servings_documents_are_read_the_same_both_ways(body: bytes, dtype: np.dtype[Any]) -> None:
    check_the_same(read_v1, body, dtype)


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(mostly(st.just("data"), st.sampled_from(["shape", "datatype", "parameters"])), CONTENT),
        min_size=1,
        max_size=2,
    ),
    st.sampled_from(["[1]", "[2]", "[4]", "[2,2]", "[3,1]", "[[1]]"]),
    DTYPE,
    FRAME,
)
def test_open_inference_documents_are_read_the_same_both_ways(
    fields: list[tuple[str, str]], shape: str, dtype: np.dtype[Any], frame: str
) -> None:
    tensor = ['"name":"x"', f'"shape":{shape}', *(f'"{name}":{value}' for name, value in fields)]
    text = frame.replace("%s", '"id":"1","inputs":[{' + ",".join(tensor) + "}]")
    check_the_same(read_v2, encode(text), dtype)


@given(VALUE, DTYPE, st.data())
def test_truncated_bodies_are_read_the_same_both_ways(value: str, dtype: np.dtype[Any], data: st.DataObject) -> None:
    body = f'{{"signature_name":"s","instances":{value}}}'.encode()
    stop = data.draw(st.integers(0, len(body)))
    check_the_same(read_v1, body[:stop], dtype)


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1),
    st.sampled_from(["float32", "float64", "float16"]),
)
def test_every_double_is_rounded_alike(floats: list[float], dtype: str) -> None:
    check_the_same(read_v1, json.dumps({"inputs": [floats, floats]}).encode(), np.dtype(dtype))


@given(st.lists(st.integers(-(2**65), 2**65), min_size=1), st.sampled_from(DTYPES))
def test_every_integer_is_read_the_same_both_ways(integers: list[int], dtype: np.dtype[Any]) -> None:
    check_the_same(read_v1, json.dumps({"instances": [{"x": integers}] * 2}).encode(), dtype)


@given(st.binary(max_size=60), st.sampled_from(DTYPES))
def test_any_bytes_are_read_the_same_both_ways(content: bytes, dtype: np.dtype[Any]) -> None:
    check_the_same(read_v1, b'{"inputs":' + content + b"}", dtype)
    check_the_same(read_v2, b'{"inputs":[{"name":"x","data":' + content + b"}]}", dtype)


@pytest.mark.parametrize("depth", [1, 30, 31, 32, 33, 500, 1000, 1010, 1024, 1030, 5000])
@pytest.mark.parametrize(
    "frame", ['{"instances":%s}', '{"inputs":%s}', '{"instances":[{"x":%s}]}', '{"inputs":[1],"z":%s}']
)
def test_any_depth_is_read_the_same_both_ways(depth: int, frame: str) -> None:
    body = frame.replace("%s", "[" * depth + "1,2" + "]" * depth)
    check_the_same(read_v1, body.encode(), np.dtype("float32"))


def array_text(shape: tuple[int, ...], dtype: str = "float32") -> tuple[Array, str]:
    array = (np.random.default_rng(0).random(shape) * 100).astype(dtype)
    return array, json.dumps(array.tolist())


@pytest.mark.parametrize(
    "frame",
    [
        '{"instances":%s}',
        '{"inputs": %s, "signature_name": "s"}',
        '{"signature_name":"s","inputs":{"x":%s}}',
        '{"inputs":[{"name":"x","shape":[4,40,30],"datatype":"FP32","data":%s}]}',
        '{"inputs":[{"name":"x","data":%s,"shape":[1]}],"id":"7"}',
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_long_arrays_are_cut_out(frame: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_cut, "SHORTEST_BYTES", SHORTEST_BYTES)
    array, text = array_text((4, 40, 30), dtype)
    document = parse_long_arrays(frame.replace("%s", text).encode())
    assert document is not None
    value = document.get("instances", document.get("inputs"))
    if isinstance(value, dict):
        value = value["x"]
    elif isinstance(value, list):
        value = value[0]["data"]
    assert isinstance(value, Numbers)
    found = value.integers(signed=False) if dtype == "uint8" else value.doubles()
    assert found is not None
    np.testing.assert_array_equal(found.astype(dtype), array, strict=True)


def test_named_rows_are_cut_out() -> None:
    array, text = array_text((40, 30))
    body = f'{{"instances":[{{"x":{text}}},{{"x":{text}}}]}}'.encode()
    document = parse_long_arrays(body)
    assert document is not None
    assert [type(each["x"]) for each in document["instances"]] == [Numbers, Numbers]
    rows = predict_documents.read(body, len(body)).inputs(signature(np.dtype("float32")))["x"]
    np.testing.assert_array_equal(rows, np.stack([array, array]), strict=True)


@pytest.mark.parametrize(
    "text",
    [
        '{"instances":["[1,2,3]"]}',
        '{"instances":[1,2,"\\u0000"]}',
        '{"instances":[1,2],"x":"\\""}',
        '{"z":[1,2,3]}',
        '{"instances":[[{"x":[1,2]}]]}',
        '{"inputs":[1],"inputs":[1]}',
        "[[1,2]]",
        '{"instances":[1,2,NaN]}',
        '{"instances":[1,2]} x',
        '{"instances":[1,2]',
    ],
)
def test_unusual_documents_are_not_cut(text: str) -> None:
    assert parse_long_arrays(text.encode()) is None


def test_short_bodies_and_bodies_with_many_strings_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    _, text = array_text((40, 30))
    words = json.dumps({"words": ["w"] * 5000}).encode()
    assert parse_long_arrays(words.replace(b"}", b',"inputs":' + text.encode() + b"}")) is None
    monkeypatch.setattr(json_cut, "SHORTEST_BYTES", SHORTEST_BYTES)
    assert parse_long_arrays(b'{"instances":[1,2]}') is None
