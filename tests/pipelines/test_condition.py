import math
import operator
import time
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.core.errors import InferenceFailed
from app.core.inference import STRING, Array, TensorSpec, string_array
from app.pipelines.condition import Condition
from app.pipelines.references import PipelineInvalid, Reference

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
A, B, C = Reference("s", "a"), Reference("s", "b"), Reference("", "c")


def holds(text: str, **inputs: Array) -> list[bool]:
    """Of a condition that reads inputs of the pipeline only."""
    mask = Condition(text).holds({Reference("", name): array for name, array in inputs.items()})
    assert mask.dtype == bool
    return list(mask.tolist())


# --- what it means ---

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip

#: Few values, so that equal ones are common.
NUMBERS = st.sampled_from([-2.5, -1.0, 0.0, 0.5, 1.0, math.inf, -math.inf, math.nan])

#: How a condition writes a value of a row, and what Python makes of it.
TERMS = st.sampled_from(["s.a", "s['b']", "c", "max(s.b)", "min(c)", "sum(s.a)", "mean(c)"]) | st.sampled_from(
    ["-1", "0.5", "-2.5", "1e999", "True"]
)


def conditions() -> st.SearchStrategy[str]:
    def compared(parts: tuple[str, str, str]) -> str:
        return " ".join(parts)

    reads = TERMS.filter(lambda term: any(letter in term for letter in "sc") and term != "1e999")
    leaves = st.tuples(reads, st.sampled_from(list(_COMPARE)), TERMS).map(compared)
    swapped = st.tuples(TERMS, st.sampled_from(list(_COMPARE)), reads).map(compared)
    return st.recursive(
        leaves | swapped,
        lambda inner: (
            inner.map("not ({})".format)
            | st.lists(inner, min_size=2, max_size=3).map(lambda each: "(" + ") and (".join(each) + ")")
            | st.lists(inner, min_size=2, max_size=3).map(lambda each: "(" + ") or (".join(each) + ")")
        ),
        max_leaves=6,
    ).filter(lambda text: len(text) <= 1000)


class _Row:
    """`s` in Python's own evaluation of a row."""

    def __init__(self, a: float, b: float) -> None:
        self.a = a
        self._b = b

    def __getitem__(self, name: str) -> float:
        assert name == "b"
        return self._b

    @property
    def b(self) -> float:
        return self._b


def by_python(text: str, a: float, b: float, c: float) -> bool:
    one = dict.fromkeys(("max", "min", "sum", "mean"), float)
    return bool(eval(text, {"__builtins__": {}, "s": _Row(a, b), "c": c, **one}))  # noqa: S307 - the tests' own text


@settings(max_examples=300)
@given(conditions(), st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=5))
@example("not (s.a < 0.5)", [(math.nan, 0.0, 0.0)])
def test_a_condition_holds_for_the_rows_for_which_python_says_so(
    text: str, rows: list[tuple[float, float, float]]
) -> None:
    columns = np.array(rows, FLOAT64).reshape(-1, 3)
    values = {A: columns[:, 0], B: columns[:, 1], C: columns[:, 2].reshape(-1, 1)}
    condition = Condition(text)
    got = condition.holds({reference: values[reference] for reference in condition.references})
    assert got.tolist() == [by_python(text, *row) for row in rows]


@pytest.mark.parametrize(("name", "function"), [("max", max), ("min", min), ("sum", sum), ("mean", np.mean)])
def test_functions_make_one_number_of_a_row_of_any_rank(name: str, function: Callable[[list[int]], float]) -> None:
    rows = np.arange(24).reshape(4, 2, 3) % 7
    want = [bool(function(row.ravel().tolist()) > 3) for row in rows]
    assert holds(f"{name}(x) > 3", x=rows) == want


def test_strings_compare_by_their_bytes() -> None:
    labels = string_array([b"cat", "größer".encode(), b""])
    assert holds("x == 'cat'", x=labels) == [True, False, False]
    assert holds("x != 'größer'", x=labels) == [True, False, True]
    assert holds("x < 'd'", x=labels) == [True, False, True]


def test_a_string_keeps_zero_bytes_at_its_end() -> None:
    assert holds(r"x == 'a\x00'", x=string_array([b"a", b"a\0"])) == [False, True]


def test_a_name_that_is_no_word_is_written_in_brackets() -> None:
    condition = Condition('s["odd name.0"] < 1')
    assert list(condition.references) == [Reference("s", "odd name.0")]


def test_what_a_condition_reads_is_known_once_and_in_order() -> None:
    condition = Condition("s.b < 1 and (c > 2 or not max(s.a) == s.b)")
    assert list(condition.references) == [B, C, A]
    assert condition.reduced == {A}


def test_a_request_without_rows_has_none_for_which_it_holds() -> None:
    assert holds("max(x) < 1", x=np.zeros((0, 3))) == []


def test_nothing_holds_for_a_row_without_elements() -> None:
    assert holds("max(x) < 1 or min(x) >= 1", x=np.zeros((2, 0))) == [False, False]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16])
def test_a_number_too_large_for_the_type_is_beyond_every_value(dtype: type) -> None:
    assert holds("x < 1e300", x=np.array([1, -2], dtype)) == [True, True]


@pytest.mark.parametrize("number", ["300", "-1.5", "1" + 30 * "0"])
def test_whole_numbers_compare_with_any_number(number: str) -> None:
    x = np.array([1, 2], np.uint8)
    assert holds(f"x < {number}", x=x) == [each < float(number) for each in (1, 2)]


def test_small_whole_numbers_do_not_overflow_in_a_sum() -> None:
    assert holds("sum(x) > 290", x=np.array([[100, 200], [90, 190]], np.uint8)) == [True, False]


# --- what is rejected ---

_REJECTED = [
    "", " ", "s.a", "not s.a", "s.a and s.b < 1", "1", "True", "1 < 2", "-1 < 2", "'a' == 'b'", "1 < -2",
    "s.a < 1 < 2", "s.a in [1]", "s.a is None", "s.a == None", "s.a < 1j", "s.a == b'x'", "s.a == ...",
    "s.a.b < 1", "s['a']['b'] < 1", "s[0] < 1", "s[c] < 1", "s[:] < 1", "f(s).a < 1", "True.a < 1",
    "abs(s.a) < 1", "max() < 1", "max(s.a, s.b) < 1", "max(s.a, axis=0) < 1", "max(*s) < 1", "max(1) < 2",
    "max(max(s.a)) < 1", "s.max(c) < 1", "__import__('os').system('ls') < 1", "exec('1') < 1",
    "s.a + 1 < 2", "+1 < s.a", "--1 < s.a", "~1 < s.a", "s.a < -s.b", "s.a & s.b", "s.a if c < 1 else s.b",
    "(lambda: 1)() < 1", "lambda: s.a < 1", "[x for x in s] < 1", "any(x < 1 for x in s)", "(x := s.a) < 1",
    "f'{s.a}' == 'x'", "f'' == s.a", "{s.a} < 1", "(s.a, 1) < 1", "await s.a < 1", "(yield) < 1",
    "s.a < 1; s.b", "s.a = 1", "import os", "s.a < 1\ns.b < 1", "s.a < 1\0", "\0", "s.a < '\\ud800'", "s.a <",
    "class.x < 1",
    "s.a < 1" + 400 * "0", "s.a < -1" + 400 * "0", "s.a < '" + "\\N{no such letter}" + "'", "\udc80 < 1",
]  # fmt: skip


@pytest.mark.parametrize("text", _REJECTED, ids=ascii)
def test_all_that_is_no_comparison_is_rejected(text: str) -> None:
    with pytest.raises(PipelineInvalid, match=r"^'when' has "):
        Condition(text)


def test_the_part_that_is_not_understood_is_named() -> None:
    with pytest.raises(PipelineInvalid, match=r"'when' has 'abs\(s.a\)', but should be a comparison such as"):
        Condition("c < 1 and abs(s.a) < 2")


def test_a_long_condition_is_rejected() -> None:
    assert Condition("s.a < 1".ljust(1000))
    with pytest.raises(PipelineInvalid, match="'when' has 1001 letters, but should have at most 1000"):
        Condition("s.a < 1".ljust(1001))


_HOSTILE = [
    "(" * 199 + "x" + ")" * 199, "(" * 1000, "-" * 999 + "1", "not " * 249 + "x", "x." * 499 + "x", "x" + "[1]" * 333,
    "x<" * 499 + "1", "x<1or " * 166, "[" * 1000, "'" * 999, "max(" * 249, "x if y else " * 83, "lambda:" * 142,
    "~" * 1000,
    "x[" * 150 + "1" + "]" * 150, "f'{" * 300, "9" * 1000, "0x" + "f" * 998, "x<0x" + "f" * 990, "\\" * 1000,
    "\n" * 1000,
]  # fmt: skip


@pytest.mark.parametrize("text", _HOSTILE, ids=lambda text: text[:6])
def test_hostile_conditions_are_rejected_at_once(text: str) -> None:
    start = time.thread_time()
    with pytest.raises(PipelineInvalid):
        Condition(text)
    assert time.thread_time() - start < 0.5


def test_the_deepest_condition_is_evaluated() -> None:
    assert holds("not " * 240 + "x < 1", x=np.array([0, 1])) == [True, False]


@settings(max_examples=200)
@given(st.text(max_size=40) | st.text(st.sampled_from("sa.b <>=!()[]'\"\\0x1-+ notandor:,{}max\n"), max_size=40))
def test_any_text_is_a_condition_or_rejected(text: str) -> None:
    try:
        condition = Condition(text)
    except PipelineInvalid:
        return
    assert condition.references


def test_letters_that_look_alike_name_the_same() -> None:
    condition = Condition("ｍａｘ(ｓ.ａ) < 1")  # Python makes plain letters of them: names of ours, nothing is run
    assert list(condition.references) == [A]


# --- what it can read ---


def check(text: str, **inputs: TensorSpec) -> None:
    Condition(text).check({Reference("", name): spec for name, spec in inputs.items()})


def spec(dtype: object, *row_shape: int | None) -> TensorSpec:
    return TensorSpec("x", np.dtype(dtype), (None, *row_shape))  # type: ignore[call-overload]  # any type of numpy's


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint64, bool, ml_dtypes.bfloat16, np.float16])
def test_numbers_of_any_type_are_read(dtype: type) -> None:
    check("x < 0.5 and max(y) > 2", x=spec(dtype), y=spec(dtype, 3))


@pytest.mark.parametrize("dtype", [STRING, np.complex64])
def test_what_has_no_greatest_element_is_rejected(dtype: np.dtype) -> None:
    with pytest.raises(PipelineInvalid, match="mean of x, which has no numbers"):
        check("max(x) < 1", x=spec(dtype, 3))


@pytest.mark.parametrize("row_shape", [(2,), (None,), (1, 2)])
def test_rows_of_several_values_are_not_compared(row_shape: tuple[int | None, ...]) -> None:
    with pytest.raises(PipelineInvalid, match="compares x, which should have one value for each row: "):
        check("x < 1", x=spec(FLOAT32, *row_shape))


@pytest.mark.parametrize("row_shape", [(), (1,), (1, 1)])
def test_rows_of_one_value_are_compared(row_shape: tuple[int, ...]) -> None:
    check("x < 1", x=spec(FLOAT32, *row_shape))


def test_rows_of_unknown_rank_are_checked_as_they_come() -> None:
    check("x < 1", x=TensorSpec("x", FLOAT32, None))
    assert holds("x < 1", x=np.zeros((2, 1, 1))) == [True, True]
    with pytest.raises(InferenceFailed, match="compares x, which should have one value for each row"):
        holds("x < 1", x=np.zeros((2, 3)))


@pytest.mark.parametrize("text", ["x < 1", "-1 == x", "x != 'a' and x < y", "y == 'a'", "max(y) == x", "'a' < max(y)"])
def test_text_and_numbers_are_not_compared(text: str) -> None:
    with pytest.raises(PipelineInvalid, match="one is a number, the other is text"):
        check(text, x=spec(STRING), y=spec(FLOAT32))


def test_text_is_compared_with_text() -> None:
    check("x != 'a' or x < y", x=spec(STRING), y=spec(STRING))
