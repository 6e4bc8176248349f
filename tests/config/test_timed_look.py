"""Storage that hangs or fails keeps nobody waiting."""

from __future__ import annotations

import threading

from app.config.timed_look import found_within


def test_storage_that_hangs_or_fails_has_found_nothing() -> None:
    def fails() -> bool:
        raise PermissionError

    hangs = threading.Event()
    assert not found_within(0.01, hangs.wait)
    assert not found_within(60.0, fails)
    hangs.set()


def test_storage_that_answers_in_time_is_believed() -> None:
    assert found_within(60.0, lambda: True)
    assert not found_within(60.0, lambda: False)
