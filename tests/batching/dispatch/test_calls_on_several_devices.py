"""Models that need several devices together, beside models that need any one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from app.batching.batch import BatchInFlight
from app.batching.batcher import Batcher
from app.batching.devices import DeviceSlots
from app.batching.function import BatchFunction, PlainWay
from app.batching.policy import BatchingOptions, SelfTuning
from app.batching.request import LaneKey
from app.batching.state import BatcherOptions
from app.batching.waiting.lane import Lane
from app.core.errors import InvalidRequest
from app.core.events import Event, ShadowChecked
from app.core.inference import Array
from app.core.reply import Answer
from tests.batching.batcher.batcher_bench import QUICK, scenario, turns
from tests.support.fakes import FakeDevice, FakeFunction, batch_function, infer, pending, rows_of


class Model(FakeFunction):
    """Says when it was called."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self.scene = scene
        self.called_s: list[float] = []

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.called_s.append(self.scene.now)
        return super().__call__(inputs)


class Scene:
    """A batcher over devices d0, d1 ... that take one second a call, and models by the devices that they need."""

    def __init__(self, devices: int, inline_s: float = 0.0, **models: Sequence[str]) -> None:
        self.loop = asyncio.get_running_loop()
        self.start_s = self.loop.time()
        self.devices = [FakeDevice(name=f"d{number}", hardware=number) for number in range(devices)]
        self.events: list[Event] = []
        policy = SelfTuning(BatchingOptions())
        self.batcher = Batcher(
            self.devices, policy, BatcherOptions(10_000, max_inline_s=inline_s), self.events.append, self.loop.time
        )
        self.models = {name: Model(self) for name in models}
        self.functions = {
            name: batch_function(self.models[name], devices=needed, initial_estimates=QUICK if inline_s else None)
            for name, needed in models.items()
        }

    @property
    def now(self) -> float:
        return self.loop.time() - self.start_s

    @property
    def slots(self) -> DeviceSlots:
        return self.batcher.state.slots

    def send(self, name: str, value: float = 1.0, rows: int = 4) -> asyncio.Task[Answer]:
        key = LaneKey(name, 1, "serving_default")
        return asyncio.create_task(infer(self.batcher, key, self.functions[name], rows_of(value, rows), rows))

    def called_s(self, name: str) -> list[float]:
        return self.models[name].called_s


def test_while_a_call_on_several_devices_runs_they_get_nothing_else() -> None:
    async def main() -> None:
        scene = Scene(2, both=("d0", "d1"), any=())
        scene.send("both")
        scene.send("any")
        await turns()
        assert repr(scene.slots).startswith("<DeviceSlots 0 of 2 free, d0+d1: ")
        assert scene.slots.remaining_s(scene.loop.time()) == [0.0, 0.0], "both are busy"
        await asyncio.sleep(3.0)
        assert (scene.called_s("both"), scene.called_s("any")) == ([0.0], [1.0])
        assert scene.slots.idle

    scenario(main)


def test_a_call_on_several_devices_waits_for_all_and_the_free_ones_wait_with_it() -> None:
    async def main() -> None:
        scene = Scene(2, both=("d0", "d1"), any=())
        scene.send("any")
        await asyncio.sleep(0.5)
        scene.send("both")
        await turns()
        scene.send("any")
        await asyncio.sleep(3.0)
        assert (scene.called_s("both"), scene.called_s("any")) == ([1.0], [0.0, 2.0])

    scenario(main)


def test_meanwhile_others_get_the_other_devices() -> None:
    async def main() -> None:
        scene = Scene(3, both=("d0", "d1"), any=())
        scene.send("any")
        await asyncio.sleep(0.5)
        for name in ("both", "any", "any"):
            scene.send(name)
            await turns()
        assert scene.called_s("any") == [0.0, 0.5], "d2 is free"
        await asyncio.sleep(0.6)
        assert scene.called_s("both") == [1.0]
        await asyncio.sleep(3.0)
        assert scene.called_s("any") == [0.0, 0.5, 1.5]

    scenario(main)


def test_a_model_that_waits_for_its_own_call_keeps_nobody_from_the_other_devices() -> None:
    async def main() -> None:
        scene = Scene(3, both=("d0", "d1"), any=())
        for name in ("both", "both", "any", "any"):
            scene.send(name)
        await asyncio.sleep(5.0)
        assert (scene.called_s("both"), scene.called_s("any")) == ([0.0, 1.0], [0.0, 1.0])

    scenario(main)


def test_who_leaves_while_the_devices_wait_for_it_gives_them_to_the_next() -> None:
    async def main() -> None:
        scene = Scene(2, both=("d0", "d1"), any=())
        scene.send("any")
        await asyncio.sleep(0.25)
        leaving = scene.send("both")
        await asyncio.sleep(0.25)
        leaving.cancel()
        await turns()
        scene.send("any")
        await asyncio.sleep(3.0)
        assert (scene.called_s("both"), scene.called_s("any")) == ([], [0.0, 0.5])

    scenario(main)


def test_models_that_share_a_device_take_turns_also_one_without_slots() -> None:
    async def main() -> None:
        scene = Scene(2, left=("d1", "x1"), right=("x1", "x2"), apart=("x7", "x8"))
        for name in ("left", "right", "apart"):
            scene.send(name)
        await asyncio.sleep(5.0)
        starts = sorted(each for name in scene.models for each in scene.called_s(name))
        assert starts == [0.0, 1.0, 2.0], "what has no slots uses the first"
        assert scene.slots.reserved == set()

    scenario(main)


def test_several_slots_of_a_device_are_all_taken() -> None:
    async def main() -> None:
        scene = Scene(3, both=("d0", "d1"), any=())
        for device in scene.devices[1:]:
            device.name = "d1"
        scene.send("both")
        await turns()
        assert not scene.slots.free
        await asyncio.sleep(2.0)
        assert scene.slots.idle

    scenario(main)


def test_quick_calls_are_not_made_on_the_event_loop_while_a_call_on_several_devices_runs() -> None:
    async def main() -> None:
        scene = Scene(3, inline_s=0.1, both=("d0", "d1"), any=())
        scene.send("both")
        scene.send("any")
        await turns()
        assert scene.slots.reserved == {"d0", "d1"}, "a call on several devices is never quick"
        assert not scene.slots.free, "the other call has the third device"
        await asyncio.sleep(2.0)
        scene.send("any")
        await turns()
        assert scene.slots.idle, "on the event loop again"

    scenario(main)


def test_a_device_that_waits_for_others_is_no_reason_to_restart() -> None:
    async def main() -> None:
        scene = Scene(2, both=("d0", "d1"), any=())
        scene.devices[0].seconds = 100.0
        scene.send("any")
        await turns()
        scene.send("both")
        await asyncio.sleep(50.0)
        assert len(scene.slots.free) == 1
        assert scene.batcher.failures(10.0) == []
        await asyncio.sleep(200.0)
        assert scene.slots.idle

    scenario(main)


def test_a_bad_request_on_several_devices_fails_alone_and_a_drain_ends() -> None:
    async def main() -> None:
        scene = Scene(2, both=("d0", "d1"), any=())
        scene.send("any")
        asked = [scene.send("both", value, rows=1) for value in (1.0, -1.0, 2.0)]
        others = [scene.send("any") for _ in range(5)]
        await turns()
        await scene.batcher.drain()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [isinstance(each, InvalidRequest) for each in answers] == [False, True, False]
        assert all(each.done() for each in others)

    scenario(main)


def test_a_group_that_waits_for_several_devices_and_a_lane_that_needs_one_of_them_are_both_computed() -> None:
    async def main() -> None:
        scene = Scene(2, both=("d0", "d1"), any=())
        asked = [scene.send("both", value, rows=1) for value in (1.0, 2.0, 3.0, -1.0)]
        await asyncio.sleep(0.5)
        others = [scene.send("any", float(value)) for value in range(1, 5)]
        await asyncio.sleep(20.0)
        answers = await asyncio.gather(*asked, *others, return_exceptions=True)
        assert [isinstance(each, InvalidRequest) for each in answers] == [False] * 3 + [True] + [False] * 4
        first_group_s = scene.called_s("both")[1]
        assert sum(each < first_group_s for each in scene.called_s("any")) <= 2, "the group is not starved"
        assert [function.requests_under_way for function in scene.functions.values()] == [0, 0]
        assert scene.batcher.failures(1.0) == []

    scenario(main)


def test_a_call_whose_devices_are_not_free_reserves_none() -> None:
    async def main() -> None:
        scene = Scene(2, both=("d0", "d1"), any=())
        scene.send("any")
        await turns()
        batch = BatchInFlight(Lane(LaneKey("both", 1, "f"), scene.functions["both"]), [pending()], "idle")
        with pytest.raises(RuntimeError, match="No device is free"):
            scene.slots.start(batch, 0.0, 0.0, lambda *_: None)
        assert scene.slots.reserved == set()
        await asyncio.sleep(2.0)
        assert scene.slots.idle

    scenario(main)


def test_a_device_that_takes_no_work_gives_all_of_them_back() -> None:
    async def main() -> None:
        scene = Scene(2, both=("d0", "d1"))
        scene.devices[0].broken = "on fire"
        asked = scene.send("both")
        await turns()
        assert scene.slots.idle
        assert scene.slots.reserved == set()
        assert asked.done()
        assert asked.exception() is not None

    scenario(main)


def test_a_shadow_check_needs_the_same_devices() -> None:
    async def main() -> None:
        scene = Scene(2, both=("d0", "d1"), any=())
        scene.functions["both"].plain = PlainWay(scene.models["both"], lambda _: None)
        scene.send("both")
        await asyncio.sleep(1.5)
        assert not scene.slots.free, "the check runs"
        scene.send("any")
        await asyncio.sleep(5.0)
        assert [event.result for event in scene.events if isinstance(event, ShadowChecked)] == ["agrees"]
        assert scene.called_s("any") == [2.0]

    scenario(main)


def test_nothing_is_checked_beside_a_call_on_several_devices() -> None:
    async def main() -> None:
        scene = Scene(3, both=("d0", "d1"), any=())
        scene.send("both")
        await turns()
        assert scene.slots.free
        assert not scene.slots.lends(scene.functions["any"]), "a check may run on a device that it was not lent"
        await asyncio.sleep(2.0)
        assert scene.slots.lends(scene.functions["any"])
        scene.send("any")
        scene.send("any")
        await turns()
        assert not scene.slots.lends(scene.functions["both"]), "one of its devices is busy"
        assert scene.slots.lends(scene.functions["any"])

    scenario(main)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_no_two_calls_share_a_device_and_nobody_waits_for_later_requests(seed: int) -> None:
    async def main() -> None:
        chance = random.Random(seed)  # noqa: S311 - no secret
        scene = Scene(4, left=("d0", "d1"), middle=("d1", "d2"), all=("d0", "d1", "d2", "d3"), any=())
        busy = set[str]()
        for device in scene.devices:
            _note_calls(device, busy)
        asked: list[tuple[str, float, int, asyncio.Task[Answer]]] = []
        for number in range(60):
            name = chance.choice(["left", "middle", "all", "any", "any"])
            before = sum(not each[-1].done() for each in asked)
            asked.append((name, scene.now, before, scene.send(name, number)))
            await asyncio.sleep(chance.choice([0.01, 0.3, 1.1]))
        await scene.batcher.drain()
        for number, (name, sent_s, before, task) in enumerate(asked):
            assert (await task).outputs["y"].tolist() == [[2.0 * number, 2.0 * number]] * 4
            calls = scene.models[name].calls
            assert scene.called_s(name)[calls.index([number] * 4)] <= sent_s + before + 0.01

    scenario(main)


def _note_calls(device: FakeDevice, busy: set[str]) -> None:
    """Keeps the names of the devices that are busy, and fails where a call is given to one of them."""
    start = device.start

    def noted(work: Any, done: Callable[[Any], None]) -> None:
        function: BatchFunction = work.args[0]  # of `execute`
        names = set(function.devices) or {device.name}
        assert busy.isdisjoint(names)
        busy.update(names)

        def ended(result: Any) -> None:
            busy.difference_update(names)
            done(result)

        start(work, ended)

    device.start = noted  # type: ignore[method-assign]  # it notes it then
