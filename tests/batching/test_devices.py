import asyncio
from collections import Counter
from collections.abc import Mapping

import pytest

from app.batching.batch import BatchInFlight, Execution
from app.batching.batcher import Batcher
from app.batching.costs.curve import CostCurve
from app.batching.devices import _GONE_KEPT, DeviceSlots, shard_rows
from app.batching.queue import Lane
from app.batching.request import LaneKey
from app.batching.state import BatcherOptions
from app.core.inference import Array
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import (
    FakeDevice,
    FakeFunction,
    FakeReply,
    batch_function,
    fake_time,
    pending,
    rows_of,
    run_in_fake_time,
)


class Scene:
    """DeviceSlots of replicas, two for each, and which replica each batch ran on."""

    def __init__(self, replicas: int) -> None:
        self.runs: list[int] = []
        runs = [self._runner(replica) for replica in range(replicas)]
        self.lane = Lane(LaneKey("m", 1, "f"), batch_function(runs[0], replicas=runs))
        self.devices = [FakeDevice(1.0, f"fake:{n}", replica=n) for n in range(replicas) for _ in range(2)]
        self.slots = DeviceSlots(self.devices, fake_time)

    def _runner(self, replica: int) -> FakeFunction:
        scene = self

        class Runner(FakeFunction):
            def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
                scene.runs.append(replica)
                return super().__call__(inputs)

        return Runner()

    def start(self) -> None:
        batch = BatchInFlight(self.lane, [pending()], "idle")
        self.slots.start(batch, fake_time(), batch.expected_s, self.ended)

    def ended(self, batch: BatchInFlight, execution: Execution) -> None:
        assert isinstance(execution.outcomes[0], dict)


def test_the_replica_with_the_least_to_do_is_next() -> None:
    async def main() -> None:
        scene = Scene(3)
        for seconds in (5.0, 1.0, 5.0):
            for device in scene.devices:
                device.seconds = seconds
            scene.start()
        assert Counter(scene.runs) == {0: 1, 1: 1, 2: 1}
        idle = scene.runs[1]
        await asyncio.sleep(2.0)
        scene.start()
        assert scene.runs[3] == idle
        assert not scene.slots.idle
        await asyncio.sleep(10.0)
        assert scene.slots.idle

    run_in_fake_time(main())


def test_of_two_free_devices_the_one_with_less_to_do_is_next() -> None:
    async def main() -> None:
        scene = Scene(2)
        scene.slots = DeviceSlots(scene.devices[:3], fake_time)
        scene.start()
        scene.start()
        assert scene.runs == [0, 1]
        await asyncio.sleep(2.0)

    run_in_fake_time(main())


def test_a_function_without_replicas_runs_on_the_first_from_every_slot() -> None:
    async def main() -> None:
        scene = Scene(1)
        scene.slots = DeviceSlots([FakeDevice(replica=2)], fake_time)
        scene.start()
        await asyncio.sleep(2.0)
        assert scene.runs == [0]

    run_in_fake_time(main())


def test_a_device_that_takes_no_work_fails_the_batch_and_stays_free() -> None:
    async def main() -> None:
        scene = Scene(1)
        scene.devices[0].broken = scene.devices[1].broken = "on fire"
        with pytest.raises(RuntimeError, match="on fire"):
            scene.start()
        assert scene.slots.idle
        assert scene.slots.failures(0.0) == ["on fire", "on fire"]
        assert scene.slots.remaining_s(0.0) == []

    run_in_fake_time(main())


SIZES = (1, 2, 4, 8, 16, 32, 64)
BY_ROW = CostCurve(SIZES, tuple(0.001 * size for size in SIZES))
FIXED = CostCurve(SIZES, tuple(0.1 + 0.001 * size for size in SIZES))


@pytest.mark.parametrize(
    ("rows", "devices", "share"),
    [
        (64, 2, 32),
        (64, 4, 16),
        (64, 3, 32),  # 22 would be computed as 32
        (48, 2, 32),
        (2, 2, 1),
        (3, 2, 2),
        (3, 8, 1),
        (1, 2, 1),
        (64, 1, 64),
        (64, 0, 64),
        (200, 2, 200),  # more than one call anyway
    ],
)
def test_idle_devices_share_what_takes_its_time_by_the_row(rows: int, devices: int, share: int) -> None:
    assert shard_rows(rows, devices, BY_ROW) == share


def test_what_takes_its_time_by_the_call_is_not_split() -> None:
    assert shard_rows(64, 2, FIXED) == 64


@pytest.mark.parametrize(("half_s", "share"), [(0.79, 1), (0.8, 2)])
def test_a_share_must_take_clearly_less_than_all_rows(half_s: float, share: int) -> None:
    assert shard_rows(2, 2, CostCurve((1, 2), (half_s, 1.0))) == share


def test_idle_devices_share_what_waits_not_what_might() -> None:
    lane = Lane(LaneKey("m", 1, "f"), batch_function(FakeFunction(), 8))
    lane.costs.curve = CostCurve((1, 2, 4, 8), (1.0, 2.0, 4.0, 8.0))
    devices = [FakeDevice(name=f"fake:{n}", hardware=n) for n in (1, 1, 2)]
    slots = DeviceSlots(devices, lambda: 0.0)
    for waiting, allowed, taken in ((3, 8, 2), (8, 4, 2), (1, 8, 8), (8, 8, 4)):
        lane.rows = waiting
        assert slots.rows_for_next(lane, allowed) == taken
    slots._take()
    assert slots.rows_for_next(lane, 8) == 8, "one piece of hardware is left"


def test_a_batch_in_flight_is_expected_to_take_the_rest_of_its_time() -> None:
    async def main() -> None:
        scene = Scene(1)
        scene.lane.costs.record_call(1, 3.0)
        for device in scene.devices:
            device.seconds = 5.0
        start_s = fake_time()
        scene.start()
        assert scene.slots.remaining_s(start_s + 1.0) == [pytest.approx(2.0)]
        assert scene.slots.remaining_s(start_s + 4.0) == [0.0]
        await asyncio.sleep(6.0)
        assert scene.slots.remaining_s(start_s) == []

    run_in_fake_time(main())


def test_a_device_is_lent_and_comes_back_also_if_it_takes_no_work() -> None:
    async def main() -> None:
        scene, results, told = Scene(2), list[int](), list[tuple[bool, list[int]]]()
        scene.slots.on_return(lambda: told.append((bool(scene.slots.free), [*results])))
        scene.slots.lend(lambda: 7, results.append)
        assert not scene.slots.idle
        scene.start()
        assert scene.runs == [1], "a batch goes to the other replica"
        await asyncio.sleep(2.0)
        assert told == [(True, [7])], "free again, after its result"
        assert scene.slots.idle
        for device in scene.devices:
            device.broken = "on fire"
        with pytest.raises(RuntimeError, match="on fire"):
            scene.slots.lend(lambda: 7, results.append)
        assert scene.slots.idle
        assert not any(scene.slots._busy_hardware.values())
        scene.slots.close()
        assert all(device.closed for device in scene.devices)

    run_in_fake_time(main())


def test_a_batch_of_unknown_costs_is_not_split() -> None:
    assert shard_rows(64, 2, None) == 64


def test_slots_say_which_device_is_busy_with_what() -> None:
    async def main() -> None:
        scene = Scene(1)
        assert repr(scene.slots) == "<DeviceSlots 2 of 2 free>"
        scene.start()
        batch = "<BatchInFlight m/1/f: 1 rows of 1 requests, idle>"
        assert repr(scene.slots) == f"<DeviceSlots 1 of 2 free, fake:0: {batch}>"
        await asyncio.sleep(2.0)
        assert repr(scene.slots) == "<DeviceSlots 2 of 2 free>"

    run_in_fake_time(main())


def test_a_batch_is_told_at_its_end_and_fails_where_no_device_takes_it() -> None:
    async def main() -> None:
        scene, ended = Scene(1), list[BatchInFlight]()
        batches = [BatchInFlight(scene.lane, [pending()], "idle") for _ in range(2)]
        scene.slots.start(batches[0], fake_time(), 0.0, lambda batch, _: ended.append(batch))
        for device in scene.devices:
            device.broken = "away"
        with pytest.raises(RuntimeError, match="away"):
            scene.slots.start(batches[1], fake_time(), 0.0, lambda batch, _: ended.append(batch))
        assert batches[1].requests[0].reply.done()
        await asyncio.sleep(2.0)
        assert ended == batches[:1]
        assert scene.slots.idle

    run_in_fake_time(main())


def test_of_what_is_served_no_second_is_forgotten_however_many_versions_go() -> None:
    """Counters of Prometheus never fall: only models without a version may be left out."""
    models = [f"m{number}" for number in range(2 * _GONE_KEPT)]

    async def main() -> None:
        batcher = Batcher([FakeDevice()], WorkConserving(), BatcherOptions(1000), clock=fake_time)
        for model in models:
            batcher.add_version(model)
            batcher.add_version(model)
            key = LaneKey(model, 1, "f")
            batcher.submit(key, batch_function(FakeFunction()), rows_of(1.0), 1, FakeReply())
        await asyncio.sleep(2 * len(models))
        before = dict(batcher.busy_s())
        assert len(before) == len(models)
        for model in models:  # the new version has taken the place of the old one
            batcher.remove_version(model)
        assert dict(batcher.busy_s()) == before
        for model in models:
            batcher.remove_version(model)
        assert len(batcher.busy_s()) == _GONE_KEPT

    run_in_fake_time(main())
