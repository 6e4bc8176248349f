import pytest

from bench.support.progress import Progress


def test_what_is_left_follows_the_pace_so_far() -> None:
    now = 100.0
    progress = Progress(100, lambda: now)
    assert progress.left_s() == 100
    progress.advance(20)
    now += 30
    assert progress.left_s() == pytest.approx(120)
    assert progress.line() == "20 %, 2 min left"


def test_more_than_all_is_not_done() -> None:
    now = 0.0
    progress = Progress(10, lambda: now)
    progress.advance(30)
    now = 5.0
    assert progress.left_s() == 0
    assert progress.line() == "100 %, 0 min left"
