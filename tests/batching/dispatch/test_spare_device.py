from collections.abc import Callable, Collection
from typing import Any, TypeVar, cast

from app.batching.dispatch.spare_device import SpareDevice
from app.batching.function import BatchFunction
from tests.support.fakes import FakeFunction, batch_function

T = TypeVar("T")


class Slots:
    """Lends a device, and ends the work when the test says so."""

    def __init__(self) -> None:
        self.free = True
        self.end: Callable[[], None] = lambda: None

    def lends(self, function: BatchFunction) -> bool:
        return self.free

    def lend(self, work: Callable[[], T], done: Callable[[T], None], together: Collection[str] = ()) -> None:
        self.end = lambda: done(work())


def test_one_piece_of_work_at_a_time_keeps_its_model_loaded_and_is_told_with_its_seconds() -> None:
    now, told, unloaded = [10.0], list[tuple[str, float]](), list[bool]()
    slots: Any = Slots()
    function = batch_function(FakeFunction(), on_idle=lambda: unloaded.append(True))
    device = SpareDevice(slots, lambda: False, lambda: now[0])
    assert device.lends(function)
    device.begin(function, lambda: "found", lambda result, seconds: told.append((result, seconds)))
    assert not device.lends(function), "it is busy, though another device is free"
    assert not unloaded
    now[0] = 12.5
    slots.end()
    assert (told, unloaded) == ([("found", 2.5)], [True])
    assert device.lends(function)
    slots.free = False
    assert not device.lends(function)


def test_while_requests_wait_work_is_due_only_after_a_while() -> None:
    now, waits, slots, function = [10.0], [True], Slots(), batch_function(FakeFunction())
    device = SpareDevice(cast(Any, slots), lambda: waits[0], lambda: now[0])
    assert device.is_due(60.0), "none was done yet"
    device.begin(function, lambda: None, lambda result, seconds: None)
    slots.end()
    now[0] += 59.0
    assert not device.is_due(60.0)
    now[0] += 1.0
    assert device.is_due(60.0)
    now[0] -= 1.0
    waits[0] = False
    assert device.is_due(60.0)
