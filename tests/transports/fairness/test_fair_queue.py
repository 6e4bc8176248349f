"""What waits comes in the order of each connection, and everybody has a turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.transports.fairness.fair_queue import FairQueue, Share

PEERS = "abc"
SHARES = [Share(peer) for peer in PEERS for _ in range(3)]

waiting = st.lists(st.integers(0, len(SHARES) - 1), min_size=1, max_size=60)


def _filled(numbers: list[int]) -> FairQueue[int]:
    queue: FairQueue[int] = FairQueue()
    for item, number in enumerate(numbers):
        queue.add(SHARES[number], item)
    return queue


def _drained(queue: FairQueue[int]) -> list[tuple[Share, int]]:
    return [queue.take() for _ in range(len(queue))]


@given(waiting)
def test_each_connection_keeps_its_order_and_nothing_is_lost(numbers: list[int]) -> None:
    queue = _filled(numbers)
    taken = _drained(queue)
    for number, share in enumerate(SHARES):
        expected = [item for item, each in enumerate(numbers) if each == number]
        assert [item for each, item in taken if each is share] == expected
    assert not queue
    assert not queue.peers


@given(waiting)
def test_no_peer_comes_twice_while_another_waits(numbers: list[int]) -> None:
    queue = _filled(numbers)
    while queue:
        peers = list(queue.peers)
        assert [queue.take()[0].peer for _ in peers] == peers


@given(waiting)
def test_of_two_in_a_row_one_is_a_connections_first_while_any_waits_for_its_first(numbers: list[int]) -> None:
    queue = _filled([number % 3 for number in numbers])  # of one peer
    had: set[Share] = set()
    first_before = True
    while queue:
        some_wait = any(share in queue and share not in had for share in SHARES)
        share, _ = queue.take()
        first = share not in had
        assert first or first_before or not some_wait
        had.add(share)
        first_before = first


@given(waiting, st.integers(0, len(SHARES) - 1))
def test_what_is_dropped_does_not_come(numbers: list[int], dropped: int) -> None:
    queue = _filled(numbers)
    expected = [item for item, number in enumerate(numbers) if number == dropped]
    assert queue.drop(SHARES[dropped]) == expected
    assert queue.drop(SHARES[dropped]) == []
    assert SHARES[dropped] not in queue
    assert sorted(item for _, item in _drained(queue)) == sorted(set(range(len(numbers))) - set(expected))
    assert not queue.peers


def test_a_newcomer_goes_before_those_that_had_something() -> None:
    queue: FairQueue[str] = FairQueue()
    old, new = Share("a"), Share("a")
    for item in ("1", "2", "3"):
        queue.add(old, item)
    assert queue.take() == (old, "1")
    queue.add(new, "new")
    assert [queue.take()[1] for _ in range(3)] in (["new", "2", "3"], ["2", "new", "3"])


def test_newcomers_without_end_do_not_keep_another_from_its_turn() -> None:
    queue: FairQueue[str] = FairQueue()
    old = Share("a")
    queue.add(old, "first")
    queue.add(old, "second")
    queue.take()
    taken = []
    for _ in range(3):
        queue.add(Share("a"), "new")
        taken.append(queue.take()[1])
    assert "second" in taken


def test_nothing_waits_of_a_peer_that_is_not_there() -> None:
    with pytest.raises(KeyError):
        FairQueue[int]().take_of("a")


@given(waiting)
def test_what_is_told_to_be_first_is_taken_next(numbers: list[int]) -> None:
    queue = _filled(numbers)
    while queue:
        peer = next(iter(queue.peers))
        told = queue.first_of(peer)
        assert queue.take()[1] == told
