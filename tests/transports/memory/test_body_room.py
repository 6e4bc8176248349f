"""What bodies may become is reserved of what a container leaves, and all of it comes back."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import BodyOverMemory, NoMemoryLeft, ServingError
from app.transports.memory.body_room import BINARY, JSON, SHORT_BYTES, BodyRoom, growth_of, growth_of_content
from app.transports.memory.client_memory import ClientMemory

MB = 2**20


class Container:
    """What it leaves, what malloc keeps of that, and a clock."""

    def __init__(self, left_mb: float) -> None:
        self.left = left_mb * MB
        self.kept = 0.0
        self.now = 0.0
        self.given_back = 0
        self.later: list[Callable[[], None]] = []
        self.room = BodyRoom(
            lambda: self.left - self.kept, lambda: self.now, self.give_back, lambda _, work: self.later.append(work)
        )

    def give_back(self) -> None:
        self.kept = 0.0
        self.given_back += 1


def test_without_a_limit_nothing_is_kept_from_anybody_and_one_look_is_enough() -> None:
    looks: list[None] = []
    container = Container(0)
    room = BodyRoom(lambda: looks.append(None) or inf, lambda: container.now)
    for container.now in range(10):
        assert room.take(room.cost(10**12, JSON))
    assert len(looks) == 1
    with room.reading(10**9) as most:
        assert most == inf
    assert room.told() == ""
    assert room.limit == inf
    assert room.unlimited
    assert not room.is_limited()


def test_a_body_that_could_never_be_taken_is_told_what_could_and_one_that_could_is_told_to_try_again() -> None:
    container = Container(140)
    memory, room = ClientMemory(room=container.room), container.room
    cost = room.cost(5 * MB, JSON)
    assert not room.take(cost)
    error = memory.rejection(cost, cost)
    assert isinstance(error, BodyOverMemory)
    assert "may take 80 MB of memory" in str(error)
    assert "leaves 75 MB for that: a body of 4.7 MB of JSON, or 9.4 MB of binary tensors" in str(error)
    cost = room.cost(3 * MB, JSON)
    assert room.take(cost)
    assert not room.take(cost)
    error = memory.rejection(cost, cost)
    assert isinstance(error, NoMemoryLeft)
    assert error.retry_after_s == 1.0
    assert "may take 48 of the 75 MB of memory" in str(error)
    room.give(cost)
    assert room.take(cost)


def test_freed_memory_is_given_back_after_the_last_reservation_and_the_room_is_as_before() -> None:
    container = Container(140)
    room = container.room
    assert room.take(10 * MB)
    assert room.take(20 * MB)
    container.kept = 60 * MB
    room.give(20 * MB)
    assert not container.later, "something is reserved"
    room.give(10 * MB)
    assert room.take(5 * MB)
    room.give(5 * MB)
    (free,) = container.later
    free()
    assert room.take(75 * MB)
    assert container.given_back == 1


def test_freed_memory_is_given_back_before_anything_is_rejected_once_a_second_at_most() -> None:
    container = Container(140)
    room = container.room
    container.kept = 60 * MB
    assert room.take(75 * MB)
    assert container.given_back == 1
    room.give(75 * MB)
    for _ in range(3):
        assert not room.take(76 * MB)
    assert container.given_back == 1
    container.now = 1.0
    assert not room.take(76 * MB)
    assert container.given_back == 2


def test_processes_that_wait_for_bodies_end_where_much_is_missing_and_before_anything_is_rejected() -> None:
    ended: list[float] = []
    container = Container(140)
    room = container.room
    room.end_idle = lambda: ended.append(container.now)
    for container.now, left_mb in [(1.0, 140), (2.0, 130), (3.0, 60)]:
        container.left = 140.0 * MB
        assert room.take(10 * MB)
        container.left = left_mb * MB
        room.give(10 * MB)
        container.later.pop()()
    assert ended == [3.0]
    container.now = 4.0
    assert not room.take(100 * MB)
    assert ended == [3.0, 4.0]


def test_a_body_that_fitted_once_is_rejected_for_now_only() -> None:
    container = Container(140)
    memory, room = ClientMemory(room=container.room), container.room
    room.measure()
    container.now, container.left = 1.0, 100 * MB
    assert not room.take(60 * MB)
    assert isinstance(memory.rejection(60 * MB, 60 * MB), NoMemoryLeft)
    assert "leaves 45 MB" in room_text(memory.rejection(76 * MB, 76 * MB))
    assert room.take(20 * MB)
    container.now, container.left = 2.0, 1000 * MB
    assert not room.take(60 * MB), "with something reserved it does not grow"
    assert isinstance(memory.rejection(76 * MB, 76 * MB), BodyOverMemory)


def room_text(error: ServingError) -> str:
    assert isinstance(error, BodyOverMemory)
    return str(error)


def test_short_bodies_reserve_nothing() -> None:
    room = Container(0).room
    assert room.cost(SHORT_BYTES - 1, JSON) == 0
    assert room.take(0)
    assert room.limit == inf, "nothing was measured"


def test_the_room_is_measured_anew_when_nothing_is_reserved_and_else_only_shrinks() -> None:
    container = Container(140)
    room = container.room
    assert room.take(10 * MB)
    container.now, container.left = 1.0, 1000 * MB
    assert not room.take(70 * MB)
    container.now, container.left = 2.0, 60 * MB
    assert not room.take(16 * MB)
    assert room.limit == 25 * MB
    room.give(10 * MB)
    container.now, container.left = 3.0, 1000 * MB
    assert room.take(700 * MB)


def test_a_process_that_reads_a_body_gets_more_while_there_is_room_and_gives_it_back() -> None:
    room = Container(140).room
    cost = room.cost(2 * MB, JSON)
    assert room.take(cost)
    with room.reading(2 * MB) as most:
        assert most == 32 * MB + 43 * MB
        assert room.reserved == room.limit
        with room.reading(2 * MB) as other:
            assert other == 32 * MB
    assert room.reserved == cost


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 80)), max_size=40), st.integers(0, 400))
def test_all_that_was_reserved_comes_back(steps: list[tuple[bool, int]], left_mb: int) -> None:
    room = Container(left_mb).room
    taken: list[float] = []
    for takes, size in steps:
        if not takes and taken:
            room.give(taken.pop(size % len(taken)))
        elif room.take(cost := room.cost(size * MB, BINARY)):
            taken.append(cost)
        assert room.reserved == sum(taken) <= max(room.limit, 0)
    for cost in taken:
        room.give(cost)
    assert room.reserved == 0


@pytest.mark.parametrize(
    ("fields", "growth"),
    [
        ([], JSON),
        ([(b"content-type", b"application/json; charset=utf-8")], JSON),
        ([(b"content-type", b"application/x-www-form-urlencoded")], JSON),
        ([(b"inference-header-content-length", b"100")], BINARY),
        ([(b"content-type", b"application/x-npy")], BINARY),
        ([(b"content-encoding", b"gzip")], 1.0),
    ],
)
def test_what_a_body_becomes_is_told_by_its_head(fields: list[tuple[bytes, bytes]], growth: float) -> None:
    assert growth_of(fields, b"/v1/models/m:predict?a=b") == growth
    assert growth_of(fields, b"/v1/models/m:predictStream") == 0
    assert growth_of_content(fields) == (JSON if growth == 1 else growth)
