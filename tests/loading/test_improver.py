import os
import threading
from collections.abc import Callable
from typing import cast

import pytest

from app.loading.improvement import Improvement
from app.loading.improver import IdleGate, Improver
from tests.support.waiting import HANG_S


class World:
    """A clock that moves only while something waits or works, and what the server does meanwhile."""

    def __init__(self, busy: Callable[[float], bool] = lambda _: False) -> None:
        self.now = 0.0
        self.busy = busy
        self.unwanted = self.ended = False
        self.gate = IdleGate(lambda: not self.busy(self.now), lambda: self.unwanted, self.wait, lambda: self.now)

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.ended


def test_an_idle_server_lets_work_begin_at_once() -> None:
    world = World()
    for _ in range(3):
        assert world.gate()
        assert world.now == 0.0


def test_a_busy_server_lets_work_begin_when_it_is_idle() -> None:
    world = World(busy=lambda now: now < 0.5)
    world.now = 0.1  # the work before took so long
    assert world.gate()
    assert 0.5 <= world.now < 0.6


def test_a_short_pause_of_a_busy_server_is_none() -> None:
    world = World(busy=lambda now: now < 0.5 and not 0.295 < now < 0.305)
    world.now = 0.1
    assert world.gate()
    assert world.now >= 0.5


def test_a_server_that_is_never_idle_gives_a_twentieth_of_its_time() -> None:
    world = World(busy=lambda _: True)
    worked_s = 0.0
    for _ in range(20):
        assert world.gate()
        world.now += 0.3
        worked_s += 0.3
    assert worked_s / world.now == pytest.approx(0.05, rel=0.1)


@pytest.mark.parametrize("reason", ["unwanted", "ended"])
def test_nothing_begins_after_the_end(reason: str) -> None:
    world = World(busy=lambda _: True)
    world.now = 1.0
    setattr(world, reason, True)
    assert not world.gate()
    assert world.now < 1.1
    world.busy = lambda _: False
    assert not world.gate()


class Niceness:
    """An improvement that looks how nice the thread is that makes it."""

    def __init__(self) -> None:
        self.model = self
        self.closing = False
        self.found: int | None = None
        self.ended = threading.Event()

    def announce(self) -> None:
        pass

    def run(self, *_: object) -> None:
        self.found = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        self.ended.set()


def test_the_thread_is_no_nicer_than_the_event_loop() -> None:
    improver, niceness = Improver(lambda: True), Niceness()
    improver.add(cast(Improvement, niceness))
    assert niceness.ended.wait(HANG_S)
    improver.close()
    assert niceness.found == os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


class Rounds:
    """An improvement that takes two rounds; in the second one a newer version comes."""

    def __init__(self, name: str, log: list[str], newer: Callable[[], None] | None = None) -> None:
        self.model = self
        self.closing = False
        self.is_later_round = False
        self.ended = threading.Event()
        self._name = name
        self._log = log
        self._newer = newer

    def announce(self) -> None:
        pass

    def run(self, gate: Callable[[], bool], is_wanted: Callable[[], bool]) -> bool:
        self._log.append(f"{self._name} begins")
        assert gate()
        if not self.is_later_round:
            self.is_later_round = self._newer is not None
        elif self._newer is not None:
            newer, self._newer = self._newer, None
            newer()
            assert not is_wanted()
            assert not gate()
            return True
        self._log.append(f"{self._name} ends")
        if self._newer is None:
            self.ended.set()
        return self._newer is not None


def test_a_later_round_gives_way_to_a_newer_version() -> None:
    log: list[str] = []
    improver = Improver(lambda: True)
    new = Rounds("new", log)
    old = Rounds("old", log, lambda: improver.add(cast(Improvement, new)))
    improver.add(cast(Improvement, old))
    assert old.ended.wait(HANG_S)
    improver.close()
    assert log == ["old begins", "old ends", "old begins", "new begins", "new ends", "old begins", "old ends"]
