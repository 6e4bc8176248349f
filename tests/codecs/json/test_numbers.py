from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.codecs.at_once import TakesLong
from app.codecs.json.long_arrays import Numbers

#: Lists of lists of numbers, mostly not rectangular.
LISTS = st.recursive(st.integers(0, 9), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=10)


@given(st.lists(LISTS, min_size=1, max_size=4), st.sampled_from(["", " ", "\n  "]))
@example([1, [2]], "")
@example([[1, 2], 3, [4]], "")
@example([[[1, 2], [3, 4]], [[5, 6]], [7, 8]], "")
def test_lists_are_an_array_if_numpy_agrees(lists: list[Any], blank: str) -> None:
    numbers = Numbers(str(lists).replace(" ", blank).replace("]", f"{blank}]").encode())
    try:
        expected = np.array(lists, np.float64)
    except ValueError:
        assert numbers.doubles() is None
        assert numbers.integers(signed=True) is None
    else:
        np.testing.assert_array_equal(numbers.doubles(), expected, strict=True)
        np.testing.assert_array_equal(numbers.integers(signed=False), expected.astype(np.uint64), strict=True)
    assert numbers.expanded() == lists


@pytest.mark.parametrize("text", ["[[]]", "[[],[]]", "[[1],[]]", "[true]", '["1"]', "[null]", '[{"a":1}]'])
def test_what_is_not_an_array_of_numbers_gives_none(text: str) -> None:
    assert Numbers(text.encode()).doubles() is None


@pytest.mark.parametrize(
    "text", ["", "[]", "1", "{}", "[", "[1", "[1,]", "[1]]", "[01]", "[NaN]", "[1e999]", "[-]", "[1 2]", "[\xff]"]
)
def test_what_is_not_json_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - there is no text
        Numbers(text.encode("latin-1"))


@pytest.mark.parametrize(
    ("text", "signed", "values"),
    [
        ("[-9223372036854775808,9223372036854775807]", True, [-(2**63), 2**63 - 1]),
        ("[18446744073709551615]", False, [2**64 - 1]),
        ("[9223372036854775808]", True, None),
        ("[-1]", False, None),
        ("[1.0]", True, None),
        ("[1e2]", True, None),
    ],
)
def test_integers(text: str, signed: bool, values: list[int] | None) -> None:
    array = Numbers(text.encode()).integers(signed)
    assert (None if array is None else array.tolist()) == values


def test_a_list_that_promises_a_huge_array_costs_nothing() -> None:
    deep = "[" * 25 + "1" + "]" * 25
    assert Numbers(f"[{deep}{',1' * 100_000}]".encode()).doubles() is None


_AT_THE_END_OF_A_PAGE = """
import ctypes, mmap, simdjson
page = mmap.PAGESIZE
memory = mmap.mmap(-1, 2 * page)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + page), page, 0) == 0
for text in (b"[1,2,3]", b"[1,23", b"[[1]", b"[0.1234567890123456789", b"[" + b"1" * 70, b'["a', b"[1.5]"):
    memory[page - len(text) : page] = text
    try:
        simdjson.Parser().parse(memoryview(memory)[page - len(text) : page])
    except ValueError:
        pass
print("alive", flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="protects a page as Linux does")
def test_nothing_after_the_text_is_read() -> None:
    """The page behind the text is protected: reading it kills the process."""
    done = subprocess.run([sys.executable, "-c", _AT_THE_END_OF_A_PAGE], capture_output=True, text=True, check=False)
    assert "alive" in done.stdout, done.stderr


def _texts(numbers: int) -> list[str]:
    """So many numbers, flat, in one list within another, and in lists of ten."""
    flat = ",".join(["1.25"] * numbers)
    rows = ",".join([f"[{','.join(['1.25'] * 10)}]"] * (numbers // 10))
    return [f"[{flat}]", f"[[{flat}]]", f"[{rows}]"]


@pytest.mark.parametrize("text", _texts(60))
def test_so_many_numbers_are_read(text: str) -> None:
    """They take as long as two values elsewhere."""
    doubles = Numbers(text.encode(), 3).doubles()
    assert doubles is not None
    assert doubles.size == 60


@pytest.mark.parametrize("text", _texts(130))
def test_more_numbers_take_long_which_is_found_before_they_are_read(text: str) -> None:
    with pytest.raises(TakesLong):
        Numbers(text.encode(), 3)


def test_what_is_so_short_is_not_counted() -> None:
    doubles = Numbers(b"[" + b"1," * 94 + b"1]", 3).doubles()
    assert doubles is not None
    assert doubles.size == 95
