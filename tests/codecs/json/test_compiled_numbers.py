"""The oracles are Python's float and numpy, which refuses lists of different lengths."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.codecs.json.compiled_numbers import LIBRARY, available, read_numbers
from tests.support.missing import skip_loudly


@pytest.fixture(autouse=True)
def _compiled() -> None:
    if not available():
        skip_loudly("NO C COMPILER WHEN FERRY WAS INSTALLED: numbers.c IS NOT TRIED")


FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def number(digits: str, point: int, exponent: int | None, negative: bool) -> str:
    """Valid JSON: no zero leads but a lone one."""
    whole, rest = digits[:point].lstrip("0") or "0", digits[point:]
    return f"{'-' * negative}{whole}{'.' * bool(rest)}{rest}" + ("" if exponent is None else f"e{exponent:+d}")


NUMBER = st.builds(
    number,
    st.text("0123456789", min_size=1, max_size=45),
    st.integers(0, 25),
    st.one_of(st.none(), st.integers(-30, 30), st.integers(-400, 400)),
    st.booleans(),
)


def is_normal(value: float) -> bool:
    return value == 0 or sys.float_info.min <= abs(value) <= sys.float_info.max


def check(text: str) -> None:
    expected = float(json.loads(text))
    read = read_numbers(f"[{text}]".encode())
    if read is None:
        # Declined: not normal, or so near to the middle between two that 19 digits do not tell.
        assert not is_normal(expected) or expected == 0 or len(text) > 19
        return
    assert read.numbers.tolist() == [expected]
    assert math.copysign(1, read.numbers[0]) == math.copysign(1, expected)
    assert read.whole == (text.lstrip("-").isdigit() and abs(int(text)) < 2**53)


@settings(max_examples=1000)
@given(NUMBER)
@example("-0")
@example("-0.0")
@example("0e999")
@example("1e22")
@example("1e23")
@example("9007199254740993")
@example("9007199254740993.0")
@example("18446744073709551615")
@example("18446744073709551616")
@example("2.2250738585072014e-308")
@example("1.7976931348623157e308")
@example("0." + "0" * 300 + "1")
@example("1" + "0" * 300)
def test_a_number_is_rounded_as_by_python_or_declined(text: str) -> None:
    check(text)


@settings(max_examples=300)
@given(st.lists(FLOATS, min_size=1))
def test_what_python_writes_is_read(floats: list[float]) -> None:
    floats = [each for each in floats if is_normal(each)] or [0.0]
    read = read_numbers(json.dumps(floats).encode())
    assert read is not None
    assert read.numbers.tolist() == floats


@settings(max_examples=300)
@given(st.floats(1e-5, 1e15), st.sampled_from(["", "0", "1", "0000000000000000000001"]))
def test_the_middle_between_two_doubles_is_rounded_to_even_or_declined(low: float, more: str) -> None:
    middle = (Decimal(low) + Decimal(math.nextafter(low, math.inf))) / 2
    text = format(middle, "f")
    check(text if "." not in text else text + more)


def test_every_power_of_ten_is_right() -> None:
    for power in range(-307, 309):
        check(f"1e{power}")
        check(f"9999999999999999999e{power - 19}")


def test_a_long_exponent_that_long_digits_undo_is_declined() -> None:
    zeros = b"0" * 1_000_000
    for text in (b"[0." + zeros + b"1e1000000000]", b"[1" + zeros + b"e-1000000000]"):
        assert read_numbers(text) is None
    check("0." + "0" * 200 + "1e250")


LISTS = st.recursive(st.integers(0, 9), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=10)


@given(st.lists(LISTS, min_size=1, max_size=4), st.sampled_from(["", " ", "\n  "]))
@example([1, [2]], "")
@example([[1, 2], 3, [4]], "")
@example([[[1, 2], [3, 4]], [[5, 6]], [7, 8]], "")
def test_lists_are_an_array_if_numpy_agrees(lists: list[Any], blank: str) -> None:
    read = read_numbers(str(lists).replace(" ", blank).replace("]", f"{blank}]").encode())
    try:
        expected = np.array(lists, np.float64)
    except ValueError:
        assert read is None
    else:
        assert read is not None
        np.testing.assert_array_equal(read.numbers, expected, strict=True)
        assert read.whole


@pytest.mark.parametrize(
    "text",
    ["", "[]", "[[]]", "[[],[]]", "[[1],[]]", "[true]", '["1"]', "[null]", '[{"a":1}]', "1", "{}", "[", "[1", "[1,]"]
    + ["[1]]", "[1] x", "[1][2]", "[,1]", "[1,,2]", "[01]", "[-01]", "[+1]", "[.5]", "[1.]", "[1.e2]", "[1e]", "[1e+]"]
    + ["[NaN]", "[Infinity]", "[1e999]", "[-]", "[1 2]", "[\xff]", "[1\0]", "[1]\0", "[1\v]", "[0x1]", "[5e-324]"]
    + ["[" * depth + "1" + "]" * depth for depth in (65, 1000, 100_000)],
)  # fmt: skip
def test_all_else_is_declined(text: str) -> None:
    assert read_numbers(text.encode("latin-1")) is None


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_declined(content: bytes) -> None:
    read = read_numbers(b"[" + content + b"]")
    try:
        expected = np.array(json.loads(b"[" + content + b"]"))
    except ValueError:
        assert read is None
    else:
        assert read is None or read.numbers.tolist() == expected.tolist()


def test_the_deepest_array_that_numpy_has_is_read() -> None:
    read = read_numbers(b"[" * 32 + b"1" + b"]" * 32)
    assert read is not None
    assert read.numbers.shape == (1,) * 32


def test_a_list_that_promises_a_huge_array_costs_nothing() -> None:
    deep = "[" * 25 + "1" + "]" * 25
    assert read_numbers(f"[{deep}{',1' * 100_000}]".encode()) is None


_AT_THE_END_OF_A_PAGE = """
import ctypes, mmap, sys
page = mmap.PAGESIZE
memory = mmap.mmap(-1, 2 * page)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + page), page, 0) == 0
read = ctypes.CDLL(sys.argv[1]).ferry_read_numbers_1
found, lengths, others = (ctypes.c_double * 100)(), (ctypes.c_int64 * 64)(), (ctypes.c_int32 * 2)()
for text in (b"[1,2,3]", b"[1,23", b"[[1]", b"[0.1234567890123456789", b"[0.1234567", b"[" + b"1" * 70, b"[1.5]"):
    at = page - len(text) - 1
    memory[at:page] = text + b"\\0"
    size = ctypes.c_int64(len(text))
    read(ctypes.c_void_p(address + at), size, found, ctypes.c_int64(100), lengths, others, ctypes.byref(others, 4))
print("alive", flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="protects a page as Linux does")
def test_nothing_after_the_text_is_read() -> None:
    """The page behind the text and its NUL is protected: reading it kills the process."""
    command = [sys.executable, "-c", _AT_THE_END_OF_A_PAGE, str(LIBRARY)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "alive" in done.stdout, done.stderr
