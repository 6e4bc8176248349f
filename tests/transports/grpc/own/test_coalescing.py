"""Which calls of a turn are computed together."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

from app.transports.grpc.own.coalescing import _by_form


class Method:
    """The message is its own form."""

    at_once = SimpleNamespace(form=lambda content: content or None)
    calls = SimpleNamespace(callers=None)


def groups_of(*calls: tuple[float, bytes]) -> list[list[float]]:
    """The seconds that the calls of each group have; those alone come last."""
    method: Any = Method()
    head = SimpleNamespace(priority=None, permit=None)
    arrived: Any = [
        (SimpleNamespace(method=method, head=head, caller="", began_s=100.0, deadline_s=100.0 + seconds), content)
        for seconds, content in calls
    ]
    alone, several = _by_form(arrived)
    return [[call.deadline_s - 100.0 for call, _ in group] for group in (*(group for _, group in several), alone)]


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
