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
    """Alone, where digits are read one by one, and behind others, where they are read all at once."""
    expected = float(json.loads(text))
    whole = text.lstrip("-").isdigit() and abs(int(text)) < 2**53
    for before in ("", "0," * 20, "-0.125,0.5,1e5," * 2):
        read = read_numbers(f"[{before}{text}]".encode())
        if read is None:
            # Declined: not normal, or so near to the middle between two that 19 digits do not tell.
            assert not is_normal(expected) or expected == 0 or len(text) > 19
            continue
        assert read.numbers[-1].tobytes() == np.float64(expected).tobytes()
        assert read.whole == (whole and "." not in before)


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


def test_a_number_of_any_length_is_read_wherever_it_stands() -> None:
    """Borders of digits are looked for in parts of 4096 bytes, the first of which begins with the 1."""
    numbers = "7 -0 -0.0 0.30000001192092896 -12345678.87654321 1234567890123456 -9007199254740991.0 1E-7"
    numbers += " 0.00012345678901234567 -0.0000123456789012345678 -0.00000123456789012345678"
    numbers += " 123456789012345678901234567890 -1.7976931348623157e308 0.3333333333333333333333333333333333333333"
    for text in numbers.split():
        expected = np.array([0, 1, float(json.loads(text)), 4.5])
        for spaces in [*range(64), *range(4050, 4110), 8190]:
            read = read_numbers(b"[0,%b1,%b%b,4.5]" % (b" " * 30, b" " * spaces, text.encode()))
            assert read is not None
            assert read.numbers.tobytes() == expected.tobytes(), (text, spaces)


def test_every_count_of_digits_is_read() -> None:
    for whole in range(1, 27):
        for rest in range(27):
            text = ("12345678987654321" * 2)[:whole] + "." * bool(rest) + ("10203040506070809" * 2)[:rest]
            for number in (text, f"0.{text.replace('.', '')}", f"-{text}", f"{text}e-5"):
                check(number)


def test_a_million_numbers_of_all_kinds_are_those_of_python() -> None:
    random = np.random.default_rng(0)
    floats = random.standard_normal(1_000_000) * 10.0 ** random.integers(-12, 12, 1_000_000)
    digits = random.integers(0, 18, floats.size).tolist()
    texts = [
        f"{each:.{count}g}" if count else str(int(each)) for each, count in zip(floats.tolist(), digits, strict=True)
    ]
    text = f"[{','.join(texts)}]"
    read = read_numbers(text.encode())
    assert read is not None
    assert read.numbers.tobytes() == np.array(json.loads(text), np.float64).tobytes()


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
    compare_with_python(b"[" + content + b"]")
    compare_with_python(b"[" + b"0.5," * 10 + content + b"]")


LONG = b"[" + b"[-1.5,0.1234567,20],[0.12345678901234567,-3,1e5]," * 3 + b"[1,2,3]]"


@settings(max_examples=1000)
@given(
    st.integers(0, len(LONG) - 1),
    st.integers(0, 3),
    st.sampled_from([b"", *(bytes([each]) for each in b"0195.-+,[] eE\0/:")]),
)
def test_an_array_with_a_fault_is_read_or_declined(at: int, dropped: int, put: bytes) -> None:
    compare_with_python(LONG[:at] + put + LONG[at + dropped :])


def compare_with_python(text: bytes) -> None:
    read = read_numbers(text)
    try:
        expected = np.array(json.loads(text), np.float64)
    except (ValueError, TypeError):
        assert read is None
    else:
        assert read is None or read.numbers.tobytes() == expected.tobytes()


def test_the_deepest_array_that_numpy_has_is_read() -> None:
    read = read_numbers(b"[" * 32 + b"1" + b"]" * 32)
    assert read is not None
    assert read.numbers.shape == (1,) * 32


def test_a_list_that_promises_a_huge_array_costs_nothing() -> None:
    deep = "[" * 25 + "1" + "]" * 25
    assert read_numbers(f"[{deep}{',1' * 100_000}]".encode()) is None


_BETWEEN_PROTECTED_PAGES = """
import ctypes, mmap, sys
page = mmap.PAGESIZE
memory = mmap.mmap(-1, 4 * page)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
for protected in (0, 3):
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + protected * page), page, 0) == 0
read = ctypes.CDLL(sys.argv[1]).ferry_read_numbers_1
room = 2000
found, lengths, others = (ctypes.c_double * room)(), (ctypes.c_int64 * 64)(), (ctypes.c_int32 * 2)()
texts = [b"[1,2,3]", b"[1,23", b"[[1]", b"[0.1234567890123456789", b"[0.1234567", b"[" + b"1" * 70, b"[1.5]"]
texts += [b"[1,", b"[1,-", b"[1,-.", b"[1 ", b"[1,2.", b"[1,2e", b"[1,2e-"]
texts += [before + text[1:] for before in (b"[" + b"0.5," * 10, b"[" + b"-1," * 1360) for text in texts]
texts += [b"[" + b" " * count + b"-0.12345678901234567,0.5,12" for count in range(130)]
texts += [b"[" + b"12," * count + b"12" for count in range(130)]
texts += [b"[" + b" " * 30 + b"1," + b" " * before + b"1" * count for before in range(8) for count in range(50, 70)]
for text in texts:
    for at in (page, 3 * page - len(text) - 1):
        memory[at : at + len(text) + 1] = text + b"\\0"
        size = ctypes.c_int64(len(text))
        read(ctypes.c_void_p(address + at), size, found, ctypes.c_int64(room), lengths, others, ctypes.byref(others, 4))
print("alive", flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="protects a page as Linux does")
def test_nothing_before_or_after_the_text_is_read() -> None:
    """The pages around the text and its NUL are protected: reading them kills the process."""
    command = [sys.executable, "-c", _BETWEEN_PROTECTED_PAGES, str(LIBRARY)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "alive" in done.stdout, done.stderr
