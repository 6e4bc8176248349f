import re

from hypothesis import given
from hypothesis import strategies as st

from app.batching.shapes.buckets import ShapeBuckets
from app.config.settings import Settings


def test_the_ladder_has_four_steps_for_each_doubling() -> None:
    tops = [ShapeBuckets().top(size) for size in range(1, 65)]
    assert sorted(set(tops)) == [8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64]
    assert tops[8] == 10  # size 9


def test_the_meaning_of_the_setting_lists_the_default_buckets() -> None:
    meaning = Settings.model_fields["shape_buckets"].description or ""
    listed = [int(top) for top in re.findall(r"\d+", meaning.partition("Empty:")[2])]
    assert listed == sorted({ShapeBuckets().top(size) for size in range(1, listed[-1] + 1)})


@given(st.integers(9, 10**6))
def test_what_shares_a_bucket_of_the_ladder_is_more_than_four_fifths_of_its_top(size: int) -> None:
    top = ShapeBuckets().top(size)
    assert size <= top < 1.25 * size
    assert ShapeBuckets().top(top) == top


def test_configured_buckets_end_and_beyond_them_each_size_is_alone() -> None:
    buckets = ShapeBuckets((10, 20))
    assert [buckets.top(size) for size in (1, 10, 11, 20, 21, 300)] == [10, 10, 20, 20, 21, 300]


def test_a_size_of_nothing_is_alone() -> None:
    assert ShapeBuckets().top(0) == ShapeBuckets((10,)).top(0) == 0
