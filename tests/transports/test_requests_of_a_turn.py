"""Requests of one turn of the event loop begin, whatever happens to others of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from app.core.burst import Burst
from app.transports.requests_of_a_turn import RequestsOfATurn
from tests.support.fakes import fake_time, run_in_fake_time


class Numbers(RequestsOfATurn[int]):
    """Begins numbers. `broken` is raised at the first of them, or by all that begin together."""

    def __init__(self, broken: str) -> None:
        super().__init__(fake_time, Burst(fake_time))
        self.broken = broken
        self.begun: list[int] = []

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
