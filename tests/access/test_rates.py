"""Token buckets: of any schedule no more requests are counted than `burst + rate * time`, and one that waits is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.access.rates import Rates
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
            assert counted(rates, who, now + wait_s - 1e-6 * (1 + wait_s)) or wait_s < 1e-5
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


@pytest.mark.parametrize("shared", [False, True])
def test_buckets_are_kept_for_many_callers(tmp_path: Path, shared: bool) -> None:
    rates = Rates(tmp_path / "rates" if shared else None)
    callers = [principal(1 / 3600, 1.0, f"caller {number}") for number in range(1000)]
    assert not any(counted(rates, who, 1.0) for who in callers)
    assert all(counted(rates, who, 1.0) == pytest.approx(3600.0) for who in callers)


def test_where_no_slot_is_free_the_bucket_that_refills_first_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.access.rates._SLOTS", 8)
    rates, callers = Rates(), [principal(1 / refill_s, 1.0, f"{refill_s} s") for refill_s in range(100, 1000, 100)]
    assert not any(counted(rates, who, 0.0) for who in callers)
    assert all(counted(rates, who, 0.0) for who in callers[1:])
    assert not counted(rates, callers[0], 0.0)


def test_processes_that_share_a_file_share_the_rate(tmp_path: Path) -> None:
    first, second = (Rates(tmp_path / "rates") for _ in range(2))
    who = principal(1.0, 4.0)
    assert [counted(each, who, 10.0) for each in (first, second, second, first)] == [0.0] * 4
    assert counted(first, who, 10.0) == counted(second, who, 10.0) == pytest.approx(1.0)
    assert (tmp_path / "rates").stat().st_mode & 0o777 == 0o600
