import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.repository.memory.load_room import LoadRoom, NoMemoryToLoad

MB = 2**20
SPARE = 32.0 * MB


class Loads:
    """Loads that begin when they have a slot and end when they are told to."""

    def __init__(self, slots: LoadRoom) -> None:
        self.slots = slots
        self.begun: list[str] = []
        self.end: dict[str, asyncio.Event] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self, name: str, needed: int) -> None:
        self.end[name] = asyncio.Event()
        self.tasks.append(asyncio.create_task(self._load(name, needed)))
        await turns()

    async def finish(self, name: str) -> None:
        self.end[name].set()
        await turns()

    async def _load(self, name: str, needed: int) -> None:
        async with self.slots.take(needed, alone=name.startswith("alone")):
            self.begun.append(name)
            await self.end[name].wait()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_as_many_loads_run_side_by_side_as_there_are_slots() -> None:
    async def scenario() -> None:
        loads = Loads(LoadRoom(2, lambda: 1e9, lambda: 2e9))
        for name in "abc":
            await loads.start(name, 10)
        assert loads.begun == ["a", "b"]
        assert repr(loads.slots) == "<LoadRoom 2 of 2 taken>"
        await loads.finish("b")
        assert loads.begun == ["a", "b", "c"]
        for name in "ac":
            await loads.finish(name)
        assert repr(loads.slots) == "<LoadRoom 0 of 2 taken>"

    run(scenario)


def test_a_load_waits_for_memory_and_those_behind_it_do_not_overtake() -> None:
    async def scenario() -> None:
        loads = Loads(LoadRoom(4, lambda: SPARE + 1000.0, lambda: 2e9))
        await loads.start("a", 600)  # of SPARE + 1000
        await loads.start("large", 600)
        await loads.start("small", 1)
        assert loads.begun == ["a"]
        await loads.finish("a")
        assert loads.begun == ["a", "large", "small"]
        await loads.finish("large")
        await loads.finish("small")

    run(scenario)


def test_a_load_that_does_not_fit_is_not_begun_and_is_told_what_is_missing() -> None:
    async def scenario() -> None:
        room = LoadRoom(4, lambda: 132 * MB, lambda: 512 * MB)
        with pytest.raises(NoMemoryToLoad) as told:
            async with room.take(150 * MB):
                pass
        assert "about 150 MB of memory, and 100 MB of 512 MB are left" in str(told.value)
        assert "50 MB more" in str(told.value)
        assert repr(room) == "<LoadRoom 0 of 4 taken>"

    run(scenario)


def test_room_is_looked_at_again_after_the_loads_before_have_ended() -> None:
    left = [SPARE + 1000.0]

    async def scenario() -> None:
        loads = Loads(LoadRoom(4, lambda: left[0], lambda: 2e9))
        await loads.start("a", 600)
        await loads.start("b", int(SPARE) + 500)
        left[0] = SPARE + 400.0  # what a took
        await loads.finish("a")
        assert loads.begun == ["a"]
        assert isinstance(loads.tasks[1].exception(), NoMemoryToLoad)

    run(scenario)


def test_what_may_have_ended_a_server_is_loaded_alone() -> None:
    async def scenario() -> None:
        loads = Loads(LoadRoom(4, lambda: 1e9, lambda: 2e9))
        for name in ("a", "alone", "b"):
            await loads.start(name, 1)
        assert loads.begun == ["a"]
        await loads.finish("a")
        assert loads.begun == ["a", "alone"]
        await loads.finish("alone")
        assert loads.begun == ["a", "alone", "b"]
        await loads.finish("b")

    run(scenario)


def test_a_load_that_is_given_up_while_it_waits_keeps_no_slot() -> None:
    async def scenario() -> None:
        loads = Loads(LoadRoom(1, lambda: 1e9, lambda: 2e9))
        await loads.start("a", 1)
        await loads.start("b", 1)
        loads.tasks[1].cancel()
        await loads.start("c", 1)
        await loads.finish("a")
        assert loads.begun == ["a", "c"]
        await loads.finish("c")

    run(scenario)


loads_of_any_kind = st.lists(
    st.tuples(st.sampled_from(["alone", "beside"]), st.integers(0, 200), st.booleans()), min_size=1, max_size=6
)


@given(schedule=loads_of_any_kind)
def test_when_all_loads_have_ended_the_room_is_as_a_new_one(schedule: list[tuple[str, int, bool]]) -> None:
    """Whatever ran, alone or beside others, refused, cancelled while it waited or ran."""

    async def scenario() -> None:
        loads = Loads(LoadRoom(2, lambda: SPARE + 100 * MB, lambda: 512.0 * MB))
        for number, (name, mb, cancelled) in enumerate(schedule):
            await loads.start(f"{name}{number}", mb * MB)
            if cancelled:
                loads.tasks[-1].cancel()
        while not all(each.done() for each in loads.tasks):
            for name in list(loads.end):
                await loads.finish(name)
        await asyncio.gather(*loads.tasks, return_exceptions=True)
        assert vars(loads.slots).keys() == vars(new := LoadRoom(2, lambda: 0.0, lambda: 0.0)).keys()
        assert (repr(loads.slots), loads.slots.one_runs) == (repr(new), False)
        loads.begun.clear()
        await loads.start("a", 50 * MB)
        await loads.start("b", 50 * MB)
        assert loads.begun == ["a", "b"], "side by side"
        for name in "ab":
            await loads.finish(name)

    run(scenario)
