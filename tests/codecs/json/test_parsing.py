from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.json.parsing import QUOTED_BYTES, parse, parse_value, quote
from app.core.errors import InvalidRequest

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a":[1,2.5,"x",true,null]}', [1, 2.5, "x", True, None]),
        (b'{"a":Infinity}', math.inf),
        (b'{"a":Inf}', math.inf),
        (b'{"a": -Inf}', -math.inf),
        (b'{"a":[-Infinity,Inf]}', [-math.inf, math.inf]),
        (b' \n\t{"a":1} and so on }]', 1),
        (b'{"a":1}{"a":2}', 1),
        (b'\xef\xbb\xbf{"a":1}', 1),
        (b'{"a":["Inf","say \\"-NaN\\" and Inf", Inf]}', ["Inf", 'say "-NaN" and Inf', math.inf]),
        (b'{"a":1,"a":2}', 2),
        (b'{"a":18446744073709551615}', 2**64 - 1),
        (b'{"a":"\\ud800"}', "\ud800"),
        (b'{"a":[NaN, 1e5]}', None),
        (b'{"a":[-NaN, 1e5]}', None),
    ],
)
def test_what_tensorflow_serving_accepts_is_parsed(body: bytes, value: Any) -> None:
    got = parse(body)["a"]
    assert (math.isnan(got[0]) and got[1] == 1e5) if value is None else got == value


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "JSON Parse error: The document is empty at offset: 0"),
        (b"  ", "JSON Parse error: The document is empty at offset: 2"),
        (b"{", "JSON Parse error: Expecting property name enclosed in double quotes at offset: 1"),
        (b'{"a":}', "JSON Parse error: Expecting value at offset: 5"),
        (b'{"a":Infx}', "JSON Parse error: Expecting ',' delimiter at offset: 13"),
        (b'{"a":"\xff"}', "JSON Parse error: invalid UTF-8 at offset: 6"),
        (b'{"a":1e999}', "JSON Parse error: the number 1e999 is too large"),
        (b'{"a":[NaN,-1e999]}', "JSON Parse error: the number -1e999 is too large"),
        (b'{"a":' + b"1" * 5000 + b"}", "JSON Parse error: a whole number has more than 4300 digits"),
        (b'{"a":' + b"[" * 100_000, "JSON Parse error: too deeply nested"),
        (b'{"a":' * 100_000, "JSON Parse error: too deeply nested"),
        (b"null", "JSON Value: null Is not object"),
        (b"[1, 2]", "JSON Value: [1, 2] Is not object"),
        (b"NaN", "JSON Value: NaN Is not object"),
        (b'"x"', 'JSON Value: "x" Is not object'),
    ],
)
def test_what_is_not_a_json_object_is_rejected(body: bytes, text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(body)
    assert str(caught.value) == text


def test_an_endless_string_of_escaped_quotes_takes_no_endless_time() -> None:
    with pytest.raises(InvalidRequest, match="JSON Parse error: Unterminated string starting at offset: 5"):
        parse(b'{"a":"' + b'\\"' * 500_000)


def test_an_integer_of_thousands_of_digits_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="JSON Parse error: "):
        parse(b'{"a":[NaN,' + b"9" * 10_000 + b"]}")


@given(st.binary(max_size=40))
def test_any_bytes_parse_or_are_rejected(body: bytes) -> None:
    with suppress(InvalidRequest):
        assert type(parse(body)) is dict


@given(JSON)
def test_trailing_garbage_changes_nothing(value: Any) -> None:
    body = orjson.dumps({"a": value})
    assert parse(body + b" x") == parse(body) == {"a": value}


@given(JSON)
def test_a_value_of_any_kind_stands_alone(value: Any) -> None:
    text = orjson.dumps(value)
    assert parse_value(b" \r" + text + b"\n") == value
    with pytest.raises(InvalidRequest, match="JSON Parse error: something after the value at offset: "):
        parse_value(text + b" x")


def test_a_value_is_read_as_leniently_as_a_body() -> None:
    assert parse_value(b"[-Inf, Infinity]") == [-math.inf, math.inf]
    assert math.isnan(parse_value(b"-NaN"))


@pytest.mark.parametrize(
    ("value", "text"), [(None, "null"), (1.5, "1.5"), ("é", '"é"'), ([1, {"a": True}], '[1, {"a": true}]')]
)
def test_short_values_are_quoted_whole(value: Any, text: str) -> None:
    assert quote(value) == text


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(1000):
        value = [value]
    return value


@pytest.mark.parametrize("value", ["x" * 1000, "é" * 1000, list(range(10**6)), deep(), "\ud800" * 500])
def test_long_values_are_cut(value: Any) -> None:
    text = quote(value)
    assert QUOTED_BYTES - 8 <= len(text.encode()) <= QUOTED_BYTES
    assert text.endswith("...")
