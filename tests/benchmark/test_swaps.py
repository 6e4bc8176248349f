import pytest

from bench.swaps import growth_percent


def test_growth_counts_from_what_the_allocator_keeps_for_the_next_version() -> None:
    kept = [float(each) for each in range(100, 120)]  # grows in the first fifth
    assert growth_percent([*kept, *[120.0] * 80]) == 0
    assert growth_percent([*kept, *[120.0] * 75, *[126.0] * 5]) == pytest.approx(5)


def test_what_a_swap_under_way_holds_does_not_count() -> None:
    assert growth_percent([100.0, 100.0, 180.0] * 34) == 0
