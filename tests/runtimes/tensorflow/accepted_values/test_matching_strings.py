import re

import numpy as np
import pytest

from app.runtimes.tensorflow.accepted_values.matching_strings import matches_all, matching_strings


@pytest.mark.parametrize(
    "pattern",
    [
        r"\d{4}-\d{2}-\d{2}", r"^[A-Z]{2}[0-9]+$", r"(a|b)c?\.[\w.]+@x\.(com|org)", r"[^@]+@[^@]+\.[a-z]{2,3}",
        r"(?:[01]\d|2[0-3]):[0-5]\d", r"(?P<year>\d{4})\s\w*", r"a{2,}b{,3}", r"[]a]{3}", r"x.*y", r"(\?a|b)c+",
    ],
)  # fmt: skip
def test_what_is_made_matches(pattern: str) -> None:
    made = matching_strings([pattern], 4, np.random.default_rng(1))
    assert all(re.fullmatch(pattern.encode(), each) for each in made)
    assert len(made) == len(set(made))
    assert len(made) >= 2 or pattern == r"a{2,}b{,3}"


@pytest.mark.parametrize("pattern", ["(", "[a", "a**", "\\", "(?=a)b", "{", "x" * 5000, "[[:alpha:]]"])
def test_a_pattern_that_is_not_understood_gives_nothing(pattern: str) -> None:
    assert matching_strings([pattern], 4, np.random.default_rng(1)) == []


def test_what_takes_very_long_is_given_up() -> None:
    """Groups in groups are read 2 to the power of their depth times; Python's `re` would go back as often as that."""
    assert matching_strings(["(" * 100 + "a" + ")" * 100], 4, np.random.default_rng(1)) == []
    assert not matches_all(b"a" * 1000 + b"!", ["(a+)+b"])


def test_what_the_graph_cannot_read_matches_nothing() -> None:
    assert not matches_all(b"a", [r"(?=a)a"])


def test_all_patterns_must_match() -> None:
    assert matching_strings([r"\d\d", r"[a-z]+"], 4, np.random.default_rng(1)) == []
    assert matches_all(b"12", [r"\d\d", r"1."])
    assert not matches_all(b"12", [r"\d\d", r"2."])
