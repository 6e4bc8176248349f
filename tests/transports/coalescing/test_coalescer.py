"""Calls of one turn are all made before the first is answered, and a bug at one call harms no other."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.errors import InferenceFailed
from app.core.inference import NO_TIME
from app.core.reply import Answer
from app.transports.coalescing.coalescer import Answers, JoinedRequests
from app.transports.coalescing.requests_of_a_turn import BEGIN_S


class Call(JoinedRequests[Any, Any]):
    """A call of a model that `takes` seconds, and notes what happens; `fails` says where it raises."""

    def __init__(self, turn: Turn, name: str, takes: float = 0.0, fails: str = "", queued: bool = False) -> None:
        self.parts = ("a request", "another")
        self.turn, self.name, self.takes, self.fails, self.queued = turn, name, takes, fails, queued

    def submit(self) -> None:
        if self.fails == "submit":
            raise ZeroDivisionError
        self.turn.told.append(f"call {self.name}")
        self.turn.now_s += self.takes
        if not self.queued:
            self.turn.answers.give(self, Answer({}, NO_TIME))

    def answer(self, answer: Answer) -> None:
        if self.fails == "answer":
            raise ZeroDivisionError
        self.turn.told.append(f"answer {self.name}")

    def set_exception(self, error: Exception, /) -> None:
        assert isinstance(error, InferenceFailed)
        self.turn.told.append(f"fail {self.name}")


class Turn:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.told: list[str] = []
        self.answers = Answers(lambda: self.now_s)

    def told_of(self, *calls: Call) -> list[str]:
        self.told.clear()
        self.answers.submit(calls)
        return self.told


def test_all_calls_of_a_turn_are_made_before_the_first_is_answered() -> None:
    turn = Turn()
    assert turn.told_of(Call(turn, "a"), Call(turn, "b")) == ["call a", "call b", "answer a", "answer b"]
    assert turn.told_of(Call(turn, "a")) == ["call a", "answer a"]
    assert turn.told_of() == []


def test_answers_wait_no_longer_than_a_turn_for_other_calls() -> None:
    turn = Turn()
    calls = [Call(turn, name, takes=0.6 * BEGIN_S) for name in "abc"]
    assert turn.told_of(*calls) == ["call a", "call b", "answer a", "answer b", "call c", "answer c"]


def test_what_a_device_computes_is_answered_when_it_comes() -> None:
    turn = Turn()
    queued = Call(turn, "a", queued=True)
    assert turn.told_of(queued, Call(turn, "b")) == ["call a", "call b", "answer b"]
    turn.answers.give(queued, Answer({}, NO_TIME))
    assert turn.told[-1] == "answer a"


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        ("submit", ["call b", "answer b"]),
        ("answer", ["call a", "call b", "fail a", "answer b"]),
    ],
)
def test_a_bug_at_one_call_keeps_no_other_from_being_answered(
    fails: str, told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    turn = Turn()
    assert turn.told_of(Call(turn, "a", fails=fails), Call(turn, "b")) == told
    assert "2 requests" in caplog.text
