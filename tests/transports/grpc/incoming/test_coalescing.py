"""Which calls of a turn are computed together."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from app.transports.grpc.incoming.coalescing import _by_form


class OwnForm:
    """A Taskless: the message is its own form."""

    def form(self, content: bytes) -> bytes | None:
        return content or None

    def model(self, _: bytes) -> str:
        return "m"


class Method:
    """All calls are of it."""

    taskless = OwnForm()
    calls = SimpleNamespace(callers=None)


METHOD = Method()


def call(seconds: float = 8.0, *, caller: str = "", priority: str | None = None, permit: Any = None) -> Any:
    head = SimpleNamespace(priority=priority)
    method: Any = METHOD
    times = {"started_s": 100.0, "deadline_s": 100.0 + seconds}
    return SimpleNamespace(method=method, head=head, caller=caller, permit=permit, **times)


def grouped(*arrived: tuple[Any, bytes]) -> list[list[Any]]:
    """The calls of each group; those alone come last."""
    alone, several = _by_form(arrived)
    return [[each for each, _ in group] for group in (*(group for _, group in several), alone)]


def groups_of(*calls: tuple[float, bytes]) -> list[list[float]]:
    """The seconds that the calls of each group have; those alone come last."""
    return [[each.deadline_s - 100.0 for each in group] for group in grouped(*[(call(s), m) for s, m in calls])]


@pytest.mark.parametrize(
    "other",
    [
        {"priority": "1"},
        {"priority": "-1"},
        {"caller": "another"},
        {"permit": SimpleNamespace(allows=lambda _: False)},
    ],
    ids=["high", "bulk", "caller", "permit"],
)  # fmt: skip
def test_a_call_that_is_another_callers_or_has_a_priority_or_may_not_be_made_joins_no_other(other: Any) -> None:
    first, different, last = call(), call(**other), call()
    assert grouped((first, b"x"), (different, b"x"), (last, b"x")) == [[first, last], [different]]
    again = call(**other)
    assert all(
        first not in group or again not in group for group in grouped((first, b"x"), (again, b"x"), (last, b"x"))
    )


def test_messages_of_one_form_go_together() -> None:
    assert groups_of((8, b"x"), (8, b"y"), (8, b"x"), (8, b"y")) == [[8, 8], [8, 8], []]


def test_what_has_no_form_and_what_is_the_only_one_of_its_form_goes_alone() -> None:
    assert groups_of((8, b""), (8, b"x"), (9, b"y"), (8, b"x")) == [[8, 8], [8, 9]]


def test_a_call_with_little_time_takes_none_from_others() -> None:
    """A group has the earliest deadline of its calls."""
    assert groups_of((8, b"x"), (0.001953125, b"x"), (9, b"x"), (inf, b"x"), (inf, b"x")) == [
        [8, 9],
        [inf, inf],
        [0.001953125],
    ]
