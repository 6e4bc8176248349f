from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batching.shapes.size_rules import FollowedSize, followed_size


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (lambda size: -(-size // 2), "~1/2*n"),
        (lambda size: size - 2, "n-2"),
        (lambda size: 3 * size, "3*n"),
        (lambda size: 2 * size + 1, "2*n+1"),
    ],
)
def test_usual_rules_are_found_and_can_be_read(rule: Callable[[int], int], text: str) -> None:
    found = followed_size("n", 5, [rule(size) for size in range(5, 30)])
    assert found is not None
    assert [found.of(size) for size in range(5, 99)] == [rule(size) for size in range(5, 99)]
    assert str(found) == text


@pytest.mark.parametrize("sizes", [[], [4], [3, 3, 3, 3], [1, 4, 9, 16, 25, 36], [9, 8, 7, 6], [1, 2, 4]])
def test_what_repeats_nowhere_or_does_not_grow_is_no_rule(sizes: list[int]) -> None:
    assert followed_size("n", 1, sizes) is None


def test_the_same_rule_is_equal() -> None:
    assert followed_size("n", 1, [1, 1, 2, 2, 3]) == FollowedSize("n", 1, (1, 1), 1)


def test_a_rule_has_to_be_seen_twice() -> None:
    assert followed_size("n", 1, [1, 1, 2, 2]) == FollowedSize("n", 1, (1, 1), 1)
    assert followed_size("n", 1, [1, 1, 2]) is None


layers = st.one_of(
    st.tuples(st.just("down"), st.integers(1, 3), st.integers(0, 3)),
    st.tuples(st.just("up"), st.integers(1, 3), st.just(0)),
)


@given(st.lists(layers, min_size=1, max_size=3), st.integers(10, 20))
def test_every_composition_of_strides_and_repetitions_is_found(chain: list[tuple[str, int, int]], least: int) -> None:
    def size_after(size: int) -> int:
        for kind, factor, less in chain:
            size = (size - less) // factor if kind == "down" else size * factor
        return size

    found = followed_size("n", least, [size_after(size) for size in range(least, least + 64)])
    assert found is not None
    assert [found.of(size) for size in range(least, 500)] == [size_after(size) for size in range(least, 500)]
