"""Token buckets: of any schedule no more requests are counted than `burst + rate * time`, and one that waits is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.access.rates import Buckets, OwnBuckets, Rates, SharedBuckets
from app.access.rules import Principal, Rules
from app.core.errors import RateExceeded


def principal(rate: float, burst: float, name: str = "a") -> Principal:
    return Principal(name, Rules(("*",), frozenset(), rate, burst))


def counted(rates: Rates, who: Principal, now: float) -> float:
    """0.0 if it was counted, else seconds until the next one would be."""
    try:
        rates.take(who, now)
    except RateExceeded as error:
        return error.retry_after_s or 0.0
    return 0.0


@given(st.floats(0.1, 100), st.floats(1, 20), st.lists(st.floats(0, 2), min_size=1, max_size=60))
def test_no_time_has_more_than_the_burst_and_the_rate(rate: float, burst: float, pauses: list[float]) -> None:
    rates, who, now, times = Rates(), principal(rate, burst), 50.0, []
    for pause in pauses:
        now += pause
        wait_s = counted(rates, who, now)
        if not wait_s:
            times.append(now)
        else:
            assert counted(Rates(rates._buckets), who, now + wait_s - 1e-6 * (1 + wait_s)) or wait_s < 1e-5
    for first in range(len(times)):
        for last in range(first, len(times)):
            assert last - first + 1 <= burst + rate * (times[last] - times[first]) + 1e-6
    assert times[0] == 50.0 + pauses[0], "the first is always counted"


def test_who_waits_as_long_as_it_was_told_is_counted() -> None:
    rates, who = Rates(), principal(4.0, 2.0)
    assert [counted(rates, who, 0.0) for _ in range(3)] == [0.0, 0.0, pytest.approx(0.25)]
    assert not counted(rates, who, 0.25)


def test_a_rate_that_is_raised_counts_at_once() -> None:
    rates = Rates()
    assert not counted(rates, principal(1 / 3600, 1.0), 0.0)
    assert counted(rates, principal(1 / 3600, 1.0), 0.0) == pytest.approx(3600.0)
    assert counted(rates, principal(10.0, 5.0), 0.0) == pytest.approx(0.1)
    assert not counted(rates, principal(10.0, 5.0), 0.1)


def test_callers_do_not_take_from_each_other() -> None:
    rates = Rates()
    assert not counted(rates, principal(1.0, 1.0, "a"), 0.0)
    assert counted(rates, principal(1.0, 1.0, "a"), 0.0)
    assert not counted(rates, principal(1.0, 1.0, "b"), 0.0)


def both(path: Path) -> list[Callable[[], Buckets]]:
    return [lambda: OwnBuckets(100), lambda: SharedBuckets(path)]


@pytest.mark.parametrize("kind", [0, 1])
def test_buckets_are_kept_for_many_and_full_ones_make_room(tmp_path: Path, kind: int) -> None:
    buckets = both(tmp_path / "rates")[kind]()
    for number in range(1000):
        buckets.keep(f"caller {number}", 1.0 + number, float(number))
    assert buckets.full_s("caller 999") == 1000.0
    assert buckets.full_s("nobody") == 0.0


def test_processes_that_share_a_file_share_the_rate(tmp_path: Path) -> None:
    first, second = (Rates(SharedBuckets(tmp_path / "rates")) for _ in range(2))
    who = principal(1.0, 4.0)
    assert [counted(each, who, 10.0) for each in (first, second, second, first)] == [0.0] * 4
    assert counted(first, who, 10.0) == counted(second, who, 10.0) == pytest.approx(1.0)
    assert (tmp_path / "rates").stat().st_mode & 0o777 == 0o600
