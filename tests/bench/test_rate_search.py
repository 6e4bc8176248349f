from hypothesis import given
from hypothesis import strategies as st

from app.bench.rate_search import RateSearch


def searched(capacity: float, first: float = 100, most_trials: int = 40) -> tuple[float | None, list[float]]:
    search, tried = RateSearch(first, most_trials), []
    while (rate := search.next_rate()) is not None:
        tried.append(rate)
        search.record(rate, rate <= capacity)
    return search.best, tried


@given(st.floats(2, 1e6), st.floats(1, 1e4))
def test_it_finds_the_highest_rate_within_five_percent(capacity: float, first: float) -> None:
    best, _ = searched(capacity, first)
    assert best is not None
    assert best <= capacity <= best * 1.05


@given(st.floats(0.1, 1e6), st.integers(1, 20))
def test_it_ends(capacity: float, most_trials: int) -> None:
    assert len(searched(capacity, most_trials=most_trials)[1]) <= most_trials


def test_it_begins_where_told_and_doubles() -> None:
    assert searched(1000)[1][:5] == [100, 200, 400, 800, 1600]


def test_a_first_rate_too_high_goes_down() -> None:
    assert searched(30)[1][:3] == [100, 50, 25]


def test_a_server_that_fails_at_every_rate_has_no_best_rate() -> None:
    best, tried = searched(0.0)
    assert best is None
    assert min(tried) >= 1


def test_a_good_rate_after_a_better_one_does_not_lower_the_best() -> None:
    search = RateSearch(100)
    search.record(200, True)
    search.record(100, True)
    assert search.best == 200
