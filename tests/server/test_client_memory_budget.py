import logging

import pytest

from app.server import client_memory_budget
from app.server.client_memory_budget import (
    MEGABYTE,
    budget_bytes,
    client_bytes,
    container_room,
    queue_bytes,
    tell_largest_bodies,
)
from app.transports.memory.body_room import BodyRoom


def test_a_setting_is_taken_as_it_is() -> None:
    assert budget_bytes(3) == 3 * MEGABYTE
    assert queue_bytes(3 * MEGABYTE) == 3 * MEGABYTE // 2


@pytest.mark.parametrize(("available", "budget"), [(4e9, 10**9), (0.0, MEGABYTE), (float("inf"), 4 * 1024 * MEGABYTE)])
def test_by_default_it_is_a_quarter_of_what_is_left(
    monkeypatch: pytest.MonkeyPatch, available: float, budget: int
) -> None:
    monkeypatch.setattr(client_memory_budget, "available_bytes", lambda: available)
    assert budget_bytes(0) == budget


def test_the_other_half_is_shared_among_processes() -> None:
    assert [client_bytes(101, processes) for processes in (1, 3)] == [51, 17]


# --- in a container ---


def test_processes_share_what_is_left() -> None:
    rooms = [container_room(processes, lambda: 400.0 * MEGABYTE) for processes in (0, 1, 2)]
    for room in rooms:
        room.measure()
    assert [room.limit / MEGABYTE for room in rooms] == [270, 270, 120]


@pytest.mark.parametrize(("left_mb", "told"), [(140, "4.7 MB of JSON, or 9.4 MB of binary tensors"), (4000, "")])
def test_a_container_that_is_too_small_for_max_body_bytes_says_what_it_takes(
    left_mb: int, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    tell_largest_bodies(BodyRoom(lambda: left_mb * float(MEGABYTE)), 64 * MEGABYTE)
    assert told in caplog.text
    assert ("bodies of max_body_bytes, 67,108,864" in caplog.text) == bool(told)


def test_without_a_limit_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    tell_largest_bodies(BodyRoom(), 64 * MEGABYTE)
    assert not caplog.text
