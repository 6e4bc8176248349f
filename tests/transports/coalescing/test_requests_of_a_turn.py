"""Requests of one turn of the event loop begin, and are answered, whatever happens to others of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from app.core.burst import Burst
from app.transports.coalescing.requests_of_a_turn import BEGIN_S, MOST_BYTES, MOST_TOGETHER, RequestsOfATurn
from app.transports.fairness.fair_queue import Share
from tests.support.fakes import fake_time, run_in_fake_time

#: Of the connections by which the numbers came.
SHARES = [Share("a")]


class Numbers(RequestsOfATurn[int]):
    """Begins numbers. `broken` is raised at the first of them, or by all that begin together."""

    def __init__(self, broken: str) -> None:
        super().__init__(fake_time, Burst(fake_time))
        self.broken = broken
        self.begun: list[int] = []

    def share_of(self, request: int) -> Share:
        return SHARES[request % len(SHARES)]

    def begin_together(self, arrived: Sequence[tuple[int, bytes]]) -> Iterable[tuple[int, bytes]]:
        if self.broken == "together":
            self.broken = ""
            raise ZeroDivisionError
        return arrived

    def begin_alone(self, request: int, content: bytes) -> bool:
        if self.broken == "alone":
            self.broken = ""
            raise ZeroDivisionError
        self.begun.append(request)
        return True


@pytest.mark.parametrize(("broken", "begun"), [("together", [0, 1, 2, 3, 4]), ("alone", [1, 2, 3, 4])])
def test_a_bug_at_some_requests_of_a_turn_keeps_no_other_from_beginning(broken: str, begun: list[int]) -> None:
    async def main() -> None:
        complaints: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["exception"]))
        numbers = Numbers(broken)
        for number in range(5):
            numbers.add(number, b"x")
        await asyncio.sleep(1.0)
        assert numbers.begun == begun
        assert [type(each) for each in complaints] == [ZeroDivisionError]

    run_in_fake_time(main())


class Shared(RequestsOfATurn[str]):
    """Begins names, whose first letter is their connection. Each that begins alone takes a third of a turn."""

    def __init__(self, *, together: bool) -> None:
        self.now_s = 0.0
        super().__init__(lambda: self.now_s, Burst(lambda: self.now_s))
        self.together = together
        self.shares = {each: Share("a") for each in "sf"}
        self.turns: list[list[str]] = []

    def share_of(self, request: str) -> Share:
        return self.shares[request[0]]

    def begin_together(self, arrived: Sequence[tuple[str, bytes]]) -> Iterable[tuple[str, bytes]]:
        self.turns.append([name for name, _ in arrived] if self.together else [])
        return () if self.together else arrived

    def begin_alone(self, request: str, content: bytes) -> bool:
        self.now_s += BEGIN_S / 3
        self.turns[-1].append(request)
        return True

    def turn_ends(self) -> None:
        self.turns.append([])


@pytest.mark.parametrize(("together", "many"), [(True, 5 * MOST_TOGETHER), (False, 1000)])
def test_one_that_comes_behind_many_of_another_connection_begins_in_the_next_turn(together: bool, many: int) -> None:
    async def main() -> None:
        requests = Shared(together=together)
        for number in range(many):
            requests.add(f"s{number}", b"x")
        await asyncio.sleep(0.0)
        requests.add("f", b"x")
        before = [name for turn in requests.turns for name in turn]
        requests.turns.clear()
        await asyncio.sleep(1.0)
        next_turns = [turn for turn in requests.turns if turn]
        assert "f" in next_turns[0]

        # Nothing is lost, and each connection keeps its order.
        begun = [*before, *(name for turn in next_turns for name in turn)]
        assert [name for name in begun if name != "f"] == [f"s{number}" for number in range(many)]

    run_in_fake_time(main())


def test_large_requests_of_one_connection_leave_room_for_anothers() -> None:
    async def main() -> None:
        requests = Shared(together=True)
        for number in range(20):
            requests.add(f"s{number}", bytes(MOST_BYTES // 2))
        requests.add("f", b"x")
        await asyncio.sleep(1.0)
        turns = [turn for turn in requests.turns if turn]
        assert "f" in turns[0] + turns[1]
        assert sum(map(len, turns)) == 21

    run_in_fake_time(main())
