"""What a container leaves for bodies is measured after freed memory was given back, and told at the start."""

import logging

import pytest

from app.server.container_memory import ContainerMemory, tell_largest_bodies
from app.transports.body_room import BodyRoom

MB = 2**20


def test_processes_share_what_is_left() -> None:
    assert ContainerMemory(0, lambda: 90.0)() == 90
    assert ContainerMemory(3, lambda: 90.0)() == 30


def test_freed_memory_is_given_back_where_less_is_left_than_before() -> None:
    left, given_back = 500.0 * MB, 0

    def give_back() -> None:
        nonlocal left, given_back
        left, given_back = left + 80 * MB, given_back + 1

    memory = ContainerMemory(0, lambda: left, give_back)
    assert (memory(), given_back) == (500 * MB, 0)
    left = 400.0 * MB
    assert (memory(), given_back) == (480 * MB, 1)
    assert (memory(), given_back) == (480 * MB, 1)


@pytest.mark.parametrize(("left_mb", "told"), [(140, "4.7 MB of JSON, or 9.4 MB of binary tensors"), (4000, "")])
def test_a_container_that_is_too_small_for_max_body_bytes_says_what_it_takes(
    left_mb: int, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    tell_largest_bodies(BodyRoom(lambda: left_mb * float(MB)), 64 * MB)
    assert told in caplog.text
    assert ("bodies of max_body_bytes, 67,108,864" in caplog.text) == bool(told)


def test_without_a_limit_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    tell_largest_bodies(BodyRoom(), 64 * MB)
    assert not caplog.text
