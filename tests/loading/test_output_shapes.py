from collections.abc import Callable, Mapping

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.batching.shapes.padding import OutputShape
from app.batching.shapes.size_rules import FollowedSize
from app.loading.output_shapes import NotUnderstood, followed_shapes

#: Two calls at the small and at the large size, and those that look for the rule.
MOST_CALLS = 2 + 24


class Model:
    """Output `y` has the size that `size_of` says, for inputs from `least` to `most`; counts its calls."""

    def __init__(self, size_of: Callable[[int], int], least: int = 1, most: int = 10**9) -> None:
        self.size_of = size_of
        self.least = least
        self.most = most
        self.calls = 0

    def shapes_at(self, sizes: Mapping[str, int]) -> Mapping[str, tuple[int, ...]] | None:
        self.calls += 1
        if not all(self.least <= size <= self.most for size in sizes.values()):
            return None
        return {"y": (1, self.size_of(sizes["n"]))}

    def follows(self, small: int = 9) -> OutputShape:
        return followed_shapes(self.shapes_at, {"n": small}, {"n": 2 * small + 1})["y"]


@pytest.mark.parametrize(
    ("size_of", "text"),
    [
        (lambda n: n, "n"),
        (lambda _: 7, "7"),
        (lambda n: n - 2, "n-2"),
        (lambda n: 3 * n, "3*n"),
        (lambda n: -(-n // 2), "~1/2*n"),
        (lambda n: (n - 1) // 4, "~1/4*n"),
        (lambda n: -(-n // 8), "~1/8*n"),
        (lambda n: n // 16, "~1/16*n"),
        (lambda n: -(-n // 32), "~1/32*n"),
        (lambda n: -(-n // 16) * 16, "~16/16*n"),
        (lambda n: (2 * n - 1) // 3, "~2/3*n"),
    ],
)
@pytest.mark.parametrize("small", [9, 33, 129])
def test_the_rules_of_usual_layers_are_found_in_few_calls(size_of: Callable[[int], int], text: str, small: int) -> None:
    model = Model(size_of)
    if size_of(small) == size_of(2 * small + 1):
        text = str(size_of(small))
    (followed,) = model.follows(small)
    assert str(followed) == text
    assert model.calls <= MOST_CALLS
    if isinstance(followed, FollowedSize):
        assert [followed.of(n) for n in range(followed.least, 500)] == [size_of(n) for n in range(followed.least, 500)]


def test_a_rule_is_found_within_the_limits_of_the_model() -> None:
    model = Model(lambda n: (n - 3) // 2, least=4, most=25)
    (followed,) = model.follows()
    assert followed == FollowedSize("n", 4, (0, 1), 1)
    assert model.calls <= MOST_CALLS


def test_fewer_than_eight_sizes_cannot_tell_a_rule() -> None:
    with pytest.raises(NotUnderstood, match="by no rule that was found: 1 and 3 for 3 and 7"):
        Model(lambda n: n // 2, most=7).follows(small=3)


@pytest.mark.parametrize(
    "size_of",
    [
        lambda n: int(n**0.5),
        lambda n: n * n,
        lambda n: max(3, 30 - n),
        lambda n: n if n < 17 else n + 1,  # holds in the first window only
        lambda n: n % 7 + n,
    ],
)
def test_what_follows_no_rule_is_not_understood_after_few_calls(size_of: Callable[[int], int]) -> None:
    model = Model(size_of)
    with pytest.raises(NotUnderstood):
        model.follows()
    assert model.calls <= MOST_CALLS


layers = st.one_of(
    st.tuples(st.just("down"), st.integers(1, 3), st.integers(0, 3)),
    st.tuples(st.just("up"), st.integers(1, 3), st.just(0)),
)


@given(st.lists(layers, min_size=1, max_size=3), st.sampled_from([9, 33]))
def test_what_is_found_for_layers_of_strides_and_repetitions_is_right(
    chain: list[tuple[str, int, int]], small: int
) -> None:
    def size_of(size: int) -> int:
        for kind, factor, less in chain:
            size = (size - less) // factor if kind == "down" else size * factor
        return max(size, 0)

    assume(size_of(small) > 0)  # smaller inputs may follow another rule
    model = Model(size_of)
    try:
        (followed,) = model.follows(small)
    except NotUnderstood:
        # Two strides of 3 and a repetition take more calls than are allowed.
        assert sum(kind == "down" and factor == 3 for kind, factor, _ in chain) >= 2
        followed = 0
    assert model.calls <= MOST_CALLS
    if isinstance(followed, FollowedSize):
        sizes = range(max(followed.least, 3 * small // 4), 500)
        assert [followed.of(n) for n in sizes] == [size_of(n) for n in sizes]
