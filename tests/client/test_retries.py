"""The decision whether and when a request is sent again."""

from __future__ import annotations

import random

import pytest
from ferry_client import ConnectionFailed, DeadlineExceeded, InferenceFailed, Overloaded
from ferry_client.retries import Deadline, pause_before_retry_s

from tests.client.fakes import FakeTime


def deadline(timeout_s: float = 30.0) -> Deadline:
    return Deadline(timeout_s, FakeTime().clock)


@pytest.fixture(autouse=True)
def _largest_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda least, most: most)


def test_the_largest_pause_doubles_up_to_two_seconds() -> None:
    error = Overloaded("full")
    pauses = [pause_before_retry_s(error, attempt, 1000, deadline()) for attempt in (1, 2, 3, 4, 5, 6, 999)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


def test_a_pause_is_random_and_comes_on_top_of_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    error = Overloaded("full", 503, 4.0)
    assert pause_before_retry_s(error, 1, 10, deadline()) == 4.1
    monkeypatch.setattr(random, "uniform", lambda least, most: least)
    assert pause_before_retry_s(error, 1, 10, deadline()) == 4.0


@pytest.mark.parametrize("error", [InferenceFailed("bug"), DeadlineExceeded("late")])
def test_an_error_that_a_retry_cannot_cure_is_final(error: InferenceFailed | DeadlineExceeded) -> None:
    assert pause_before_retry_s(error, 1, 10, deadline()) is None


def test_the_error_of_the_last_attempt_is_final() -> None:
    error = ConnectionFailed("closed")
    assert pause_before_retry_s(error, 2, 3, deadline()) is not None
    assert pause_before_retry_s(error, 3, 3, deadline()) is None


def test_an_error_is_final_if_the_pause_would_end_after_the_deadline() -> None:
    assert pause_before_retry_s(Overloaded("full", 503, 4.0), 1, 10, deadline(4.1)) is None
    assert pause_before_retry_s(Overloaded("full", 503, 4.0), 1, 10, deadline(4.2)) == 4.1


def test_a_deadline_prints_the_time_left() -> None:
    assert repr(deadline(1.5)) == "<Deadline in 1.500 s>"
