"""Everything counted comes back to zero: rows, room, leases, flows, trees and what a drain waits for.

Whoever leaves, fails or is late, on whatever way: when all have gone, a server is as it was before they came.
"""

from __future__ import annotations

import asyncio
import gc
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.batching.batcher import Batcher
from app.batching.priority import BULK
from app.batching.state import BatcherOptions
from app.core.errors import Overloaded
from app.core.inference import InferenceRequest
from app.protocols.streams.lines import Block
from app.protocols.streams.window import Window
from bench.simulator.peer_policies import WorkConserving
from tests.laws.between_rooms.composed import places
from tests.pipelines.pipeline_world import CASCADE, CHAIN, EACH, TWO, rows_of
from tests.pipelines.tree_world import CHAIN as NODES_FIRST
from tests.pipelines.tree_world import TREES, Trees, tree
from tests.support.fakes import (
    KEY,
    FakeDevice,
    FakeFunction,
    FakeReply,
    batch_function,
    request_now,
    run_in_fake_time,
)
from tests.support.fakes import (
    rows_of as inputs_of,
)

#: What it learns of calls, by their sizes, and what the models of this test remember.
LEARNS = ("CostCurve.", "Costs.", "Pace.", "NumpyModel.")

#: The pipelines that callers ask, and `None` for the model `small` itself.
WAYS = {"cascade": CASCADE, "chain": CHAIN, "each": EACH, "two": TWO}

#: The small model rejects it, the big one fails for it.
BAD = [-1.0, 13.0]

clients = st.tuples(
    st.sampled_from([0.0, 0.0, 0.0, 0.5, 1.0, 2.5]),  # when it calls
    st.sampled_from([*WAYS, "small", "tree", "tree"]),
    st.sampled_from([1, 1, 2, 3, 5, 17]),  # rows, or leaves of a tree
    st.sampled_from([1.0, 1.0, 1.0, 2.0, *BAD]),
    st.sampled_from([inf, inf, 0.0, 0.3, 1.0, 3.2]),  # when it leaves
    st.sampled_from([inf, inf, 0.5, 2.0]),  # its deadline
    st.sampled_from([0, 0, -1]),  # -1: bulk
    st.sampled_from(["a", "a", "b"]),
)


#: Of ways whose requests are no rows of x.
OTHER_INPUTS: dict[str, Any] = {"tree": tree(3), "nodes first": {"words": np.ones(3, np.float32)}}


class Counted:
    """Pipelines and trees, and what of them is counted."""

    def __init__(self, **options: Any) -> None:
        self.world = Trees(**{"fair_callers": True, **options})
        self.models: dict[str, Any] = {name: self.world.load(text, name) for name, text in WAYS.items()}
        self.models["tree"] = self.world.load(TREES, "tree")
        self.models["nodes first"] = self.world.load(NODES_FIRST, "nodes first")
        self.models["small"] = self.world.models["small"][1]

    async def ask(self, client: tuple[Any, ...]) -> None:
        at_s, way, rows, value, leaves_s, timeout_s, priority, caller = client
        await asyncio.sleep(at_s)
        inputs = {"x": rows_of(*[value] * rows)} if way != "tree" else tree(max(rows, 2), rows)
        if way == "tree" and value in BAD:  # a tree that is none
            inputs["children"] = inputs["children"] * 0
        request = InferenceRequest(inputs, "", (), self.world.loop.time() + timeout_s, priority, caller)
        request.signature = "serving_default"
        asked = asyncio.ensure_future(self.models[way].infer(request))
        await asyncio.wait([asked], timeout=None if leaves_s == inf else leaves_s)
        asked.cancel()
        await asyncio.wait([asked])
        if not asked.cancelled():
            asked.exception()

    async def play(self, schedule: list[tuple[Any, ...]]) -> None:
        asked = [asyncio.ensure_future(self.ask(each)) for each in schedule]
        await asyncio.gather(*asked)
        await asyncio.sleep(100)  # what runs on a device ends

    def sizes(self) -> dict[str, int]:
        self.world.events.clear()
        gc.collect()
        found = places({"batcher": self.world.batcher, "pipelines": self.world.pipelines, "models": self.models})
        return {place: values.total() for place, values in found.items() if not place.startswith(LEARNS)}

    def check(self) -> None:
        """Nothing waits, nothing is held, nothing is leased."""
        batcher = self.world.batcher
        assert batcher.idle
        assert batcher.queue.rows == batcher.queue.room.rows == 0
        assert str(batcher.queue.room).startswith("<Room 0/"), batcher.queue.room
        callers: Any = batcher.queue.callers
        assert callers.waiting == 0
        assert batcher.state.drain.flows == 0
        for versions in self.world.models.values():
            for model in versions.values():
                assert model.open_requests == 0


@settings(max_examples=12, deadline=None)
@given(schedule=st.lists(clients, min_size=4, max_size=12), seconds=st.sampled_from([1.0, 0.2]))
def test_when_all_have_gone_all_is_as_before(schedule: list[tuple[Any, ...]], seconds: float) -> None:
    async def main() -> None:
        counted = Counted(seconds=seconds)
        for _ in range(2):
            await counted.play(schedule)
            counted.check()
        before = counted.sizes()
        for _ in range(3):
            await counted.play(schedule)
            counted.check()
        grown = {place: now - before.get(place, 0) for place, now in counted.sizes().items()}
        assert not {place: by for place, by in grown.items() if by >= 3}  # a leak grows each time

    run_in_fake_time(main())


@settings(max_examples=40, deadline=None)
@given(schedule=st.lists(clients, min_size=1, max_size=8), drain_s=st.sampled_from([0.1, 0.6, 1.2]))
def test_a_drain_ends_with_the_last_that_it_waits_for(schedule: list[tuple[Any, ...]], drain_s: float) -> None:
    async def main() -> None:
        counted = Counted()
        asked = [asyncio.ensure_future(counted.ask(each)) for each in schedule]
        await asyncio.sleep(drain_s)
        counted.world.batcher.begin_drain()
        drained = asyncio.ensure_future(counted.world.batcher.drain())
        await asyncio.gather(*asked)
        await asyncio.sleep(2)  # a call that runs on a device
        assert drained.done()
        counted.check()

    run_in_fake_time(main())


@pytest.mark.parametrize("way", [*WAYS, "small"])
def test_bulk_requests_leave_half_of_the_queue_to_others_on_every_way(way: str) -> None:
    async def main() -> None:
        counted = Counted(seconds=1000.0, max_rows=16, fair_callers=False)
        model = counted.models[way]

        async def accepted(priority: int) -> int:
            """How many until one is rejected."""
            for number in range(99):
                reply = FakeReply()
                request = InferenceRequest({"x": rows_of(1.0)}, "serving_default", (), inf, priority, f"{number}")
                try:
                    handles.append(model.submit(request, reply))
                except Overloaded:
                    return number
                await asyncio.sleep(0.01)
                if reply.answers:
                    assert isinstance(reply.answers[0], Overloaded)
                    return number
            raise AssertionError("the queue has no bound")

        handles: list[Any] = []
        bulk, others = await accepted(BULK), await accepted(0)
        assert others >= 4, f"{bulk} bulk requests left room for {others}"
        for each in handles:
            each.cancel()

    run_in_fake_time(main())


@pytest.mark.parametrize("way", ["cascade", "chain", "each", "two", "tree", "nodes first"])
def test_bulk_finds_no_room_on_a_way_whose_last_model_has_none_for_bulk(way: str) -> None:
    async def main() -> None:
        counted = Counted(seconds=1000.0, max_rows=16, fair_callers=False)
        last = counted.world.models["big"][1]

        def send(model: Any, priority: int, inputs: Any = None) -> Any:
            request = InferenceRequest(inputs or {"x": rows_of(1.0)}, "serving_default", (), inf, priority)
            reply = FakeReply()
            try:
                handles.append(model.submit(request, reply))
            except Overloaded as error:
                reply.set_exception(error)
            return reply

        handles: list[Any] = []
        for _ in range(2):  # the first ones go to the device
            while not send(last, BULK).answers:
                assert len(handles) < 99
            await asyncio.sleep(0.1)
        reply = send(counted.models[way], BULK, OTHER_INPUTS.get(way))
        await asyncio.sleep(0.1)
        assert [type(each) for each in reply.answers] == [Overloaded]
        reply = send(counted.models[way], 0, OTHER_INPUTS.get(way))
        await asyncio.sleep(0.1)
        assert not reply.answers
        for each in handles:
            each.cancel()

    run_in_fake_time(main())


def test_each_that_a_drain_waits_for_ends_it_where_it_is_the_last() -> None:
    """A request in the queue that is cancelled, one that is computed, and one of several steps that is between two."""

    async def main() -> None:
        for last in ("waits", "computed", "between steps"):
            batcher = Batcher(
                [FakeDevice(1.0)],
                WorkConserving(),
                BatcherOptions(99),
                clock=asyncio.get_running_loop().time,
            )
            handles = [
                batcher.submit(
                    KEY, batch_function(FakeFunction(), 1), request_now(batcher, inputs_of(1.0), 1, FakeReply())
                )
                for _ in range({"waits": 2, "computed": 1}.get(last, 0))
            ]
            if last == "between steps":
                batcher.steps.begin_flow()
            await asyncio.sleep(0.5)
            drained = asyncio.ensure_future(batcher.drain())
            await asyncio.sleep(0)
            assert not drained.done()
            if last == "waits":
                handles[1].cancel()
            if last == "between steps":
                batcher.steps.end_flow()
            else:
                await asyncio.sleep(0.6)
            for _ in range(3):
                await asyncio.sleep(0)
            assert drained.done(), last

    run_in_fake_time(main())


def all_in_time(schedule: list[tuple[Any, ...]], devices: int) -> None:
    """Plays it with devices that hang; each is answered at its deadline, 3.2 s at most."""

    async def main() -> None:
        counted = Counted(seconds=10_000.0, devices=devices)
        late: list[str] = []

        async def ask(client: tuple[Any, ...]) -> None:
            at_s, way, rows, _, _, timeout_s, priority, caller = client
            timeout_s = min(timeout_s, 3.2)
            await asyncio.sleep(at_s)
            inputs = {"x": rows_of(*[1.0] * rows)} if way != "tree" else tree(max(rows, 2), rows)
            deadline_s = counted.world.loop.time() + timeout_s
            request = InferenceRequest(inputs, "serving_default", (), deadline_s, priority, caller)
            asked = asyncio.ensure_future(counted.models[way].infer(request))
            await asyncio.wait([asked], timeout=timeout_s + 0.2)
            if not asked.done():
                late.append(f"{way} with {rows} rows")
            asked.cancel()
            await asyncio.wait([asked])

        await asyncio.gather(*[ask(each) for each in schedule])
        assert not late

    run_in_fake_time(main())


@settings(max_examples=40, deadline=None)
@given(schedule=st.lists(clients, min_size=1, max_size=10), devices=st.sampled_from([1, 2]))
def test_nobody_waits_longer_than_its_deadline_though_the_device_hangs(
    schedule: list[tuple[Any, ...]], devices: int
) -> None:
    all_in_time(schedule, devices)


@pytest.mark.parametrize("way", [*WAYS, "small", "tree"])
@pytest.mark.parametrize(("callers", "rows"), [(3, 1), (12, 1), (12, 3), (2, 17)])
@pytest.mark.parametrize("devices", [1, 2, 3])
def test_so_it_is_for_those_of_one_turn(way: str, callers: int, rows: int, devices: int) -> None:
    """They go as one where that is possible, which is divided where it is more than a call."""
    client = (0.0, way, rows, 1.0, inf, inf, 0, "a")
    later = (0.5, *client[1:])
    all_in_time([client] * callers + [later] * callers, devices)


@settings(max_examples=100, deadline=None)
@given(blocks=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 30)), min_size=1, max_size=40))
def test_a_window_that_is_empty_again_lets_in_what_it_let_in_first(blocks: list[tuple[int, int]]) -> None:
    async def main() -> None:
        window, inside = Window(4, 40), [Block(1, [b"1"])]
        await window.enter(inside[0])
        for lines, size in blocks:
            block = Block(1, [b"1" * size] * lines)
            entering = asyncio.ensure_future(window.enter(block))
            while not entering.done():
                await asyncio.sleep(0.1)
                if not entering.done():
                    window.leave(inside.pop(0))
            inside.append(block)
            rows, room = sum(len(each.lines) for each in inside), sum(each.size for each in inside)
            assert len(inside) == 1 or (rows <= 4 and room <= 40)
        while inside:
            window.leave(inside.pop())
        for _ in range(3):  # all of the room is there again
            each = Block(1, [b"1" * 10])
            await asyncio.wait_for(window.enter(each), 0.1)
            inside.append(each)

    run_in_fake_time(main())
