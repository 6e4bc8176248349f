from __future__ import annotations

import numpy as np
import pytest

from app.codecs.at_once import TakesLong
from app.codecs.json import long_arrays
from app.codecs.json.compiled_numbers import available
from app.codecs.json.long_arrays import Numbers, parse_long_arrays
from tests.support.missing import skip_loudly


@pytest.fixture(autouse=True)
def _compiled() -> None:
    if not available():
        skip_loudly("NO C COMPILER WHEN FERRY WAS INSTALLED: numbers.c IS NOT TRIED")


def test_an_array_of_numbers_is_read_as_doubles_and_as_lists() -> None:
    numbers = Numbers(b"[[1, 2.5], [-3e2, 4]]")
    np.testing.assert_array_equal(numbers.doubles(), [[1, 2.5], [-300, 4]], strict=True)
    assert numbers.expanded() == [[1, 2.5], [-300.0, 4]]


@pytest.mark.parametrize(
    ("text", "signed", "values"),
    [
        ("[-9007199254740991,9007199254740991,0,-0]", True, [1 - 2**53, 2**53 - 1, 0, 0]),
        ("[255,9007199254740991]", False, [255, 2**53 - 1]),
        ("[9007199254740992]", True, None),
        ("[-1]", False, None),
        ("[1.0]", True, None),
        ("[1e2]", True, None),
        ("[0.0]", True, None),
    ],
)
def test_integers(text: str, signed: bool, values: list[int] | None) -> None:
    array = Numbers(text.encode()).integers(signed)
    assert (None if array is None else array.tolist()) == values


@pytest.mark.parametrize("text", ["", "[]", "[[1],[2,3]]", "[true]", "[1", "[1e999]", "[" * 33 + "1" + "]" * 33])
def test_all_else_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - there is no text
        Numbers(text.encode())


@pytest.mark.parametrize("arrays", [1, 2])
def test_more_numbers_take_long_in_one_array_or_in_several(arrays: int) -> None:
    def body(numbers: int) -> bytes:
        array = b"[" + b"1.25," * (numbers // arrays - 1) + b"1.25]"
        return b'{"inputs":{' + b",".join(b'"%d":%b' % (name, array) for name in range(arrays)) + b"}}"

    most = 400
    assert parse_long_arrays(body(12_000), most) is not None  # at most 4.5 ns a byte
    with pytest.raises(TakesLong):
        parse_long_arrays(body(13_000), most)  # 406 values by their number, and 64 by their bytes


def test_without_a_compiler_documents_are_read_in_the_ordinary_way(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"instances":[' + b"1.25," * 5000 + b"1.25]}"
    assert parse_long_arrays(body) is not None
    monkeypatch.setattr(long_arrays, "available", lambda: False)
    assert parse_long_arrays(body) is None
