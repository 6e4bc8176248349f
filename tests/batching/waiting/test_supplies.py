"""Supplies: who is called, until when, and who may be computed at once."""

from __future__ import annotations

from app.batching.waiting.supplies import Supplies


class Ready:
    """What stands ready: notes for each call whether it was alone, and does what `then` says."""

    def __init__(self, supplies: Supplies, *then: str) -> None:
        self.supplies = supplies
        self.then = list(then)
        self.alone = list[bool]()

    def __call__(self) -> None:
        assert self.supplies.asking
        self.alone.append(self.supplies.alone)
        step = self.then.pop(0) if self.then else ""
        if step == "again":
            self.supplies.add(self)
        elif step == "computed":
            self.supplies.computed()
        elif step == "broken":
            raise ValueError


def asked(supplies: Supplies, *, queued: bool = False) -> bool:
    found = supplies.ask(lambda: queued)
    assert not supplies.asking
    assert not supplies.alone
    return found


def supplies_with(*scripts: tuple[str, ...]) -> tuple[Supplies, list[Ready], list[str]]:
    failed = list[str]()
    supplies = Supplies(lambda what, error: failed.append(type(error).__name__))
    ready = [Ready(supplies, *script) for script in scripts]
    for each in ready:
        supplies.add(each)
    return supplies, ready, failed


def test_each_is_called_once() -> None:
    supplies, ready, _ = supplies_with((), ())
    assert len(supplies.waiting) == 2
    assert not asked(supplies)
    assert [each.alone for each in ready] == [[False], [False]]
    assert not supplies.waiting


def test_what_stands_ready_alone_may_be_computed_at_once_and_ends_the_turn() -> None:
    supplies, (ready,), _ = supplies_with(("computed", "again"))
    assert asked(supplies)
    assert ready.alone == [True]


def test_only_what_was_alone_counts_as_computed() -> None:
    supplies, _, _ = supplies_with((), ("again",))
    assert not asked(supplies)


def test_those_that_come_meanwhile_are_called_while_nothing_waits_in_the_queue() -> None:
    supplies, (ready,), _ = supplies_with(("again", "again"))
    assert not asked(supplies)
    assert ready.alone == [True, True, True]


def test_those_that_come_meanwhile_stay_once_something_waits_in_the_queue() -> None:
    supplies, (ready,), _ = supplies_with(("again",))
    assert not asked(supplies, queued=True)
    assert ready.alone == [True]
    assert len(supplies.waiting) == 1


def test_one_that_raises_is_told_of_and_the_others_are_called() -> None:
    supplies, ready, failed = supplies_with(("broken",), ())
    assert not asked(supplies)
    assert failed == ["ValueError"]
    assert len(ready[1].alone) == 1
