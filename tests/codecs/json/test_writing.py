from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.codecs.json import writing
from app.codecs.json.nested_lists import tensor
from app.codecs.json.parsing import parse
from app.codecs.json.writing import check_writable, dumps, dumps_in_slices, jsonable, takes_long
from app.core.errors import Unsupported
from app.core.inference import STRING, Array, string_array

PLAIN = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)] + [
    "float16",
    "float32",
    "float64",
    "bool",
]
DTYPES = [np.dtype(name) for name in (*PLAIN, ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.float8_e5m2)]


@st.composite
def arrays(draw: st.DrawFn) -> Array:
    """Any bits at all."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    count = math.prod(shape)
    if dtype.kind == "b":
        return np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)), bool).reshape(shape)
    if dtype.name == "int4":
        return (
            np.array(draw(st.lists(st.integers(-8, 7), min_size=count, max_size=count)), np.int64)
            .astype(dtype)
            .reshape(shape)
        )
    size = count * dtype.itemsize
    array: Array = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), dtype).reshape(shape)
    return array


def written(array: Array, name: str = "y") -> bytes:
    return dumps({"a": jsonable(name, array)})


def read(body: bytes, dtype: Any) -> Array:
    return tensor(parse(body)["a"], np.dtype(dtype))


@given(arrays())
@example(np.array(np.nan, ml_dtypes.float8_e5m2))
def test_every_array_comes_back(array: Array) -> None:
    back = read(written(array), array.dtype)
    assert back.dtype == array.dtype
    # JSON cannot tell [] of shape (0, 3) from [] of shape (0,).
    assert back.shape == array.shape or not array.size
    if array.dtype.isbuiltin != 1:  # numpy does not know the NaN of these types as one
        np.testing.assert_array_equal(back.reshape(-1).astype(np.float32), array.reshape(-1).astype(np.float32))
    else:
        np.testing.assert_array_equal(back.reshape(-1), array.reshape(-1))
    if array.dtype.kind == "f":
        finite = ~np.isnan(array)
        assert (np.signbit(back.reshape(array.shape)) == np.signbit(array))[finite].all()


@given(st.lists(st.binary(max_size=4), max_size=4), st.sampled_from(["y", "y_bytes"]))
def test_every_string_comes_back(values: list[bytes], name: str) -> None:
    array = np.empty(len(values), STRING)
    array[:] = values
    assert read(written(array, name), STRING).tolist() == values


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.array([0.1, 1, 16777217, 1e-8], np.float32), b"[0.1,1.0,16777216.0,1e-8]"),
        (np.array([0.1, 1e22], np.float64), b"[0.1,1e+22]"),
        (np.array([1.5, np.nan, -np.inf, np.inf], np.float32), b"[1.5,NaN,-Infinity,Infinity]"),
        (np.array([[np.nan], [0.2]], np.float16), b"[[NaN],[0.19995117]]"),
        (np.array([1, np.nan], ml_dtypes.bfloat16), b"[1.0,NaN]"),
        (np.float32(0.1), b"0.1"),
        (np.float64("nan"), b"NaN"),
        (np.array(7, np.uint16), b"7"),
        (np.array([2**64 - 1], np.uint64), b"[18446744073709551615]"),
        (np.array([True, False]), b"[true,false]"),
        (np.arange(6.0).reshape(2, 3).T, b"[[0.0,3.0],[1.0,4.0],[2.0,5.0]]"),
        (np.zeros((2, 0), np.float32), b"[[],[]]"),
        (np.array([[b"a"], [b"\xff"]], STRING), b'[["a"],[{"b64":"/w=="}]]'),
        (np.array(b"a", STRING), b'"a"'),
        (np.array([[np.nan, 1], [2, 3]]).T, b"[[NaN,2.0],[1.0,3.0]]"),
    ],
)
def test_the_text_of_arrays(array: Any, text: bytes) -> None:
    assert written(np.asarray(array)) == b'{"a":' + text + b"}"


@pytest.mark.parametrize(
    "shape", [(0, 3), (2**16 + 1,), (3, 50_000), (1, 200_000), (2, 1, 100_000), (70_000, 2), (3, 3)], ids=str
)
def test_long_arrays_are_written_in_slices(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of at most 65,536 numbers: what is written at once holds up every other thread."""
    array = np.resize(np.array([0.5, np.nan, -np.inf, 3], np.float32), shape)
    document = {"a": jsonable("a", array), "b": [{"c": jsonable("c", array[:1])}, "text", 1]}
    expected, write, sizes = dumps(document), writing._numbers, []

    def noted(part: Any) -> bytes:
        sizes.append(part.size)
        return write(part)

    monkeypatch.setattr(writing, "_numbers", noted)
    assert dumps_in_slices(document) == expected
    assert max(sizes, default=0) <= 2**16
    assert sum(sizes) == array.size + array[:1].size


def test_strings_of_outputs_named_bytes_are_base64() -> None:
    assert written(np.array([b"ab"], STRING), "image_bytes") == b'{"a":[{"b64":"YWI="}]}'


@pytest.mark.parametrize("values", [[[1.0, 2.0], [3.0, 4.0]], [[1.0, np.nan], [3.0, 4.0]], [1.0, np.inf]])
def test_rows_can_be_taken_one_by_one(values: Any) -> None:
    array = np.array(values, np.float32)
    taken = jsonable("y", array)
    assert b"[" + b",".join(dumps(taken[i]) for i in range(len(array))) + b"]" == dumps(jsonable("y", array))


@pytest.mark.parametrize("dtype", ["complex64", [("qint8", "i1")]])
def test_types_that_json_cannot_represent_are_not_supported(dtype: Any) -> None:
    with pytest.raises(Unsupported, match=r"Failed to write JSON value for tensor type: DT_(COMPLEX64|QINT8)$"):
        check_writable(np.dtype(dtype))
    with pytest.raises(Unsupported):
        jsonable("y", np.zeros(1, dtype))


@pytest.mark.parametrize("dtype", [*DTYPES, STRING], ids=str)
def test_types_that_json_can_represent_are_written(dtype: np.dtype[Any]) -> None:
    check_writable(dtype)
    assert orjson.loads(written(np.zeros(2, dtype) if dtype != STRING else np.array([b"", b""], STRING)))


_STRINGS = [
    ["", "a", 'x"\\\n\u00e9\u20ac' * 3, "\U0001f600" * 10],
    [["short"] * 3, ["long " * 9, {"b64": "QUJD" * 9}]],
    "\u00e9" * 100,
]


@pytest.mark.parametrize("document", _STRINGS)
def test_long_strings_are_written_in_slices(document: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call of the writer takes a part of them, and their text is as from one call for all."""
    expected = dumps(document)
    sizes: list[int] = []
    write = orjson.dumps

    def watched(value: object, *args: Any, **kwargs: Any) -> bytes:
        text = write(value, *args, **kwargs)
        if not isinstance(value, orjson.Fragment | list | dict):
            sizes.append(len(text))
        return text

    monkeypatch.setattr(writing, "_SLICE_CHARACTERS", 8)
    monkeypatch.setattr(writing, "_LONG_STRING", 4)
    monkeypatch.setattr(writing, "_GROUP", 2)
    monkeypatch.setattr(writing.orjson, "dumps", watched)
    assert dumps_in_slices({"x": document}) == b'{"x":' + expected + b"}"
    assert max(sizes) <= 2 + 8 * 6  # quotes, and the longest escape of each character


def test_numbers_that_are_not_finite_are_spelled_out_in_slices_too() -> None:
    rows = [{"a": np.float32(np.nan), "b": np.array([1, np.inf], np.float32)}]
    assert dumps_in_slices(rows) == dumps(rows) == b'[{"a":NaN,"b":[1.0,Infinity]}]'


def test_short_documents_are_written_without_letting_another_thread_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the event loop that would wait for whichever thread has taken the GIL."""
    monkeypatch.setattr(writing.time, "sleep", None)
    assert dumps([{"a": np.array([1, np.nan], np.float32)}] * 2) == b'[{"a":[1.0,NaN]},{"a":[1.0,NaN]}]'
    assert dumps(["a", "null" * 2000]) == b'["a","%b"]' % (b"null" * 2000)


@pytest.mark.parametrize(("count", "length", "long"), [(1, 3 << 20, True), (70_000, 0, True), (100, 100, False)])
def test_strings_are_long_by_their_characters_or_their_number(count: int, length: int, long: bool) -> None:
    assert takes_long({"s": string_array([b"x" * length] * count)}) is long


@pytest.mark.parametrize("name", ["a", "image_bytes"])
@pytest.mark.parametrize("value", [*DTYPES, b"ab", b"\xff", b""], ids=str)
def test_a_scalar_is_written_as_the_only_element_of_a_list_is(name: str, value: Any) -> None:
    array = np.array([value], STRING) if isinstance(value, bytes) else np.ones(1, value)
    assert b"[" + dumps(jsonable(name, array.reshape(()))) + b"]" == dumps(jsonable(name, array))
