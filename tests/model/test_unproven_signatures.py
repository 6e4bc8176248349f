"""A signature that nothing proved: its requests run alone, prove that they may share calls, and share them then."""

import asyncio
import gc
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from weakref import ref

import numpy as np
import pytest

from app.batching.batcher import Batcher
from app.batching.dispatch.traffic_proof import MOST_BYTES_OF_ALL
from app.batching.state import BatcherOptions
from app.core.batch_sizes import BatchSizes
from app.core.inference import Array, InferenceRequest, ModelSignature, TensorSpec
from app.model import Model
from app.placement import RequestPlacement
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import FakeDevice, run_in_fake_time

SIZES = BatchSizes.powers_of_two(16)


class OneInput:
    """y = 2 x, or what a mixing model makes of it. Remembers the rows of each call of requests."""

    def __init__(self, mixes_from: int = 10**6, writes: tuple[str, ...] = (), draws: tuple[str, ...] = ()) -> None:
        spec = TensorSpec("x", np.dtype(np.float64), (None, 1))
        signature = ModelSignature("f", {"x": spec}, {"y": spec, "z": spec}, writes=writes, draws=draws)
        self.signatures: Mapping[str, ModelSignature] = {"f": signature}
        self.calls: list[int] = []
        self.closed = False
        self._mixes_from = mixes_from

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        self.calls.append(len(inputs["x"]))
        return self.run_plain(signature, inputs, outputs)

    def run_plain(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        assert not self.closed
        x = inputs["x"]
        answer = {"y": 2 * x + (x.max() if len(x) >= self._mixes_from else 0), "z": 3 * x}
        return {name: answer[name] for name in outputs or answer}

    def stop_variants(self, signature: str) -> None: ...

    def close(self) -> None:
        self.closed = True


def placed(loaded: OneInput, rows: int, **more: Any) -> RequestPlacement:
    """As it is placed when calls of so many rows are proven."""
    known = loaded.signatures["f"]
    alone = {} if rows > 1 else dict.fromkeys(known.outputs, "it is not proven yet")
    return RequestPlacement(
        "m", 1, loaded, SIZES, signatures={"f": replace(known, alone=alone)}, unproven={"f": rows}, **more
    )


class World:
    """A model on one device, whose policy is the simplest: it does what requests proved."""

    def __init__(self, loaded: OneInput) -> None:
        self.loaded = loaded
        self.found: list[int] = []
        self.stopped: list[tuple[str, str, str]] = []
        self.batcher = Batcher(
            [FakeDevice(0.01)], WorkConserving(), BatcherOptions(1000), clock=asyncio.get_running_loop().time
        )
        self.placement = self.place(1)
        self.model = Model(self.placement, self.batcher, SIZES)

    def place(self, rows: int) -> RequestPlacement:
        return placed(self.loaded, rows, on_traffic=self.on_traffic, on_stopped=lambda *what: self.stopped.append(what))

    def on_traffic(self, signature: str, rows: int) -> None:
        assert signature == "f"
        self.found.append(rows)
        self.placement = self.place(rows)
        self.model.adopt(self.placement)

    async def ask(self, count: int, first: float = 1.0) -> int:
        """The rows of the largest call, of `count` requests at the same time. Every answer must be right."""
        values = [first + number for number in range(count)]
        answers = await asyncio.gather(
            *[self.model.infer(InferenceRequest({"x": np.array([[value]])}, "f")) for value in values]
        )
        assert [float(answer.outputs["y"][0, 0]) for answer in answers] == [2 * value for value in values]
        rows = [0 if answer.timing is None else answer.timing.rows for answer in answers]
        await asyncio.sleep(1.0)
        return max(rows)


def test_requests_run_alone_until_they_proved_that_rows_are_independent_and_share_calls_then() -> None:
    async def main() -> None:
        world = World(OneInput())
        for turn in range(60):
            before = max([1, *world.found])
            rows = await world.ask(16, first=16.0 * turn)
            assert rows <= before, "no call is larger than what was proven before it began"
        assert world.found == [8, 16]
        assert rows == 16
        assert world.placement.call_rows("f") == 16
        assert world.model.learnt_costs()

    run_in_fake_time(main())


def test_requests_run_alone_for_ever_where_rows_see_each_other() -> None:
    async def main() -> None:
        world = World(OneInput(mixes_from=2))
        for turn in range(30):
            assert await world.ask(16, first=16.0 * turn) == 1
        assert world.found == []
        ((signature, what, reason),) = world.stopped
        assert (signature, what) == ("f", "sharing")
        assert world.placement.signatures["f"].why_alone() == reason
        assert world.placement.call_rows("f") == 1

    run_in_fake_time(main())


def test_what_larger_calls_disprove_ends_the_smaller_ones_too() -> None:
    async def main() -> None:
        world = World(OneInput(mixes_from=9))
        for turn in range(60):
            await world.ask(16, first=16.0 * turn)
        assert world.found == [8]
        assert await world.ask(16) == 1
        assert [each[:2] for each in world.stopped] == [("f", "sharing")]

    run_in_fake_time(main())


def test_rows_are_let_go_when_requests_are_placed_in_another_way_and_when_the_version_is_unloaded() -> None:
    async def main() -> None:
        world = World(OneInput())
        await world.ask(8)
        first = world.placement
        trial = first.place(InferenceRequest({"x": np.zeros((1, 1))}, "f"))[1].trial
        assert trial is not None
        assert trial.bytes > 0
        world.model.adopt(world.place(1))
        assert (trial.bytes, trial.ended) == (0, True)

        await world.ask(8)
        trial = world.model._placement.place(InferenceRequest({"x": np.zeros((1, 1))}, "f"))[1].trial
        assert trial is not None
        assert trial.bytes > 0
        await world.model.close()
        assert (trial.bytes, trial.ended) == (0, True)
        assert world.loaded.closed

    run_in_fake_time(main())


@pytest.mark.parametrize(("end", "mixes_from"), [("proven", 1000), ("disproved", 2), ("unloaded", 1000)])
def test_rows_are_let_go_when_a_signature_is_proven_or_disproved_and_when_its_version_goes(
    end: str, mixes_from: int
) -> None:
    """Nothing else holds them: the collector is off."""

    async def main() -> None:
        world = World(OneInput(mixes_from=mixes_from))
        await world.ask(8)
        assert 0 < world.batcher.kept_row_bytes <= MOST_BYTES_OF_ALL
        trial = world.placement._trials["f"]
        kept = [ref(array) for row in trial._kept.rows for array in (*row.inputs.values(), *row.answer.values())]
        assert len(kept) == 3 * 8
        if end == "unloaded":
            await world.model.close()
        else:
            for turn in range(60):
                await world.ask(16, first=16.0 * turn)
            assert (world.found, bool(world.stopped)) == (([8, 16], False) if end == "proven" else ([], True))
        assert world.batcher.kept_row_bytes == 0
        assert not any(array() is not None for array in kept)

    gc.disable()
    try:
        run_in_fake_time(main())
    finally:
        gc.enable()


def test_a_model_is_unloaded_after_the_mix_under_way() -> None:
    """It asserts that it is not called when it is closed."""

    async def main() -> None:
        world = World(OneInput())
        for turn in range(3):
            await world.ask(16, first=16.0 * turn)
        answer = asyncio.create_task(world.ask(2, first=100.0))
        await asyncio.sleep(0.015)
        await world.model.close()
        await answer
        assert world.loaded.closed

    run_in_fake_time(main())


@pytest.mark.parametrize("loaded", [OneInput(writes=("AssignVariableOp",)), OneInput(draws=("RandomUniform",))])
def test_requests_prove_nothing_of_what_writes_state_or_draws_random_numbers(loaded: OneInput) -> None:
    placement = placed(loaded, 1)
    _, function, _ = placement.place(InferenceRequest({"x": np.zeros((1, 1))}, "f"))
    assert not function.batchable
    assert function.trial is None


def test_requests_for_a_part_of_the_outputs_prove_nothing_and_run_alone() -> None:
    placement = placed(OneInput(), 1)
    _, part, _ = placement.place(InferenceRequest({"x": np.zeros((1, 1))}, "f", outputs=("z",)))
    _, whole, _ = placement.place(InferenceRequest({"x": np.zeros((1, 1))}, "f", outputs=("z", "y")))
    assert (part.batchable, whole.batchable) == (False, False)
    assert part.trial is None
    assert whole.trial is not None


def test_calls_are_no_larger_than_what_was_proven() -> None:
    placement = placed(OneInput(), 4)
    _, function, _ = placement.place(InferenceRequest({"x": np.zeros((1, 1))}, "f"))
    assert function.sizes.allowed == (1, 2, 4)
    assert function.trial is not None
    assert placement.call_rows("f") == 4
    assert RequestPlacement("m", 1, OneInput(), SIZES).call_rows("f") == 16


def test_what_is_stopped_is_told_once_by_the_placement_in_use() -> None:
    told: list[tuple[str, str, str, int]] = []
    placements = [
        RequestPlacement("m", 1, OneInput(), SIZES, on_stopped=lambda *what, n=number: told.append((*what, n)))
        for number in range(2)
    ]
    placements[0].successor = placements[1]
    for _ in range(2):
        placements[0].stop("f", "sharing", "why")
    assert told == [("f", "sharing", "why", 1)]
    placements[1].stop("f", "padding", "another")
    assert told[1:] == [("f", "padding", "another", 1)]


def test_placements_that_stop_each_other_come_to_an_end() -> None:
    """Versions of the same graph are told of each other's faults."""
    versions: list[RequestPlacement] = []

    def stop_all(signature: str, what: str, reason: str) -> None:
        for each in versions:
            each.stop(signature, what, reason)

    versions += [RequestPlacement("m", number, OneInput(), SIZES, on_stopped=stop_all) for number in range(3)]
    versions[0].stop("f", "sharing")
    assert all(each.signatures["f"].why_alone() for each in versions)
