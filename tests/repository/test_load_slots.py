import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from app.repository.load_slots import LoadSlots


class Loads:
    """Loads that begin when they have a slot and end when they are told to."""

    def __init__(self, slots: LoadSlots) -> None:
        self.slots = slots
        self.begun: list[str] = []
        self.end: dict[str, asyncio.Event] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self, name: str, file_bytes: int) -> None:
        self.end[name] = asyncio.Event()
        self.tasks.append(asyncio.create_task(self._load(name, file_bytes)))
        await turns()

    async def finish(self, name: str) -> None:
        self.end[name].set()
        await turns()

    async def _load(self, name: str, file_bytes: int) -> None:
        async with self.slots.take(partial(asyncio.sleep, 0, file_bytes)):
            self.begun.append(name)
            await self.end[name].wait()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_as_many_loads_run_side_by_side_as_there_are_slots() -> None:
    async def scenario() -> None:
        loads = Loads(LoadSlots(2, lambda: 1e9))
        for name in "abc":
            await loads.start(name, 10)
        assert loads.begun == ["a", "b"]
        assert repr(loads.slots) == "<LoadSlots 2 of 2 taken>"
        await loads.finish("b")
        assert loads.begun == ["a", "b", "c"]
        for name in "ac":
            await loads.finish(name)
        assert repr(loads.slots) == "<LoadSlots 0 of 2 taken>"

    run(scenario)


def test_a_load_waits_for_memory_and_those_behind_it_do_not_overtake() -> None:
    async def scenario() -> None:
        loads = Loads(LoadSlots(4, lambda: 1000.0))
        await loads.start("a", 200)  # takes 600 of 1000
        await loads.start("large", 200)
        await loads.start("small", 1)
        assert loads.begun == ["a"]
        await loads.finish("a")
        assert loads.begun == ["a", "large", "small"]
        await loads.finish("large")
        await loads.finish("small")

    run(scenario)


def test_a_lone_load_is_tried_whatever_it_takes() -> None:
    async def scenario() -> None:
        loads = Loads(LoadSlots(4, lambda: 0.0))
        await loads.start("huge", 10**12)
        assert loads.begun == ["huge"]
        await loads.finish("huge")

    run(scenario)


def test_a_load_that_is_given_up_while_it_waits_keeps_no_slot() -> None:
    async def scenario() -> None:
        loads = Loads(LoadSlots(1, lambda: 1e9))
        await loads.start("a", 1)
        await loads.start("b", 1)
        loads.tasks[1].cancel()
        await loads.start("c", 1)
        await loads.finish("a")
        assert loads.begun == ["a", "c"]
        await loads.finish("c")

    run(scenario)
