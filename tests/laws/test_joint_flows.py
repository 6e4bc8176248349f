"""Requests that arrive in one turn of the event loop and go through a pipeline together fare as if each were alone.

Also beside those of other turns, with which they fill calls, beside requests for the models themselves, and where they
are cancelled in the very turn in which a call ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.batching.policy import BatchingOptions
from app.core.batch_sizes import BatchSizes
from app.core.errors import DeadlineExceeded, InvalidRequest, Overloaded, ShuttingDown
from app.core.events import BatchExecuted, BatchRejected, CallRepeated, PipelineEnded
from app.core.inference import Array, InferenceRequest
from app.pipelines.pipeline_model import PipelineModel
from tests.pipelines.pipeline_world import BODIES, CASCADE, World, rows_of
from tests.support.fakes import run_in_fake_time

#: Pipelines whose steps follow one another, and what they compute of y; None where time-outs decide.
PIPELINES: dict[str, tuple[bytes, Callable[[Array], Array] | None]] = {
    "cascade": (CASCADE, lambda x: np.where(x.sum(1)[:, None] < 10, x * 10, x + 1)),
    "joined": (
        b"""
steps:
  small: {model: small, inputs: {x: x}}
  big: {model: big, inputs: {x: x}, when: small.score < 10}
  last: {model: big, inputs: {x: [big.y, small.y]}}
outputs: {y: last.y}
""",
        lambda x: np.where(x.sum(1)[:, None] < 10, x * 100, (x + 1) * 10),
    ),
    "gate at the door": (
        b"""
steps:
  big: {model: big, inputs: {x: x}, when: max(x) < 3}
  small: {model: small, inputs: {x: [big.y, x]}}
outputs: {y: small.y}
""",
        lambda x: np.where(x.max(1)[:, None] < 3, x * 10, x) + 1,
    ),
    "two gates": (
        b"""
steps:
  small: {model: small, inputs: {x: x}}
  alone: {model: alone, inputs: {x: small.y}, when: small.score > 3}
  big: {model: big, inputs: {x: [alone.y, small.y]}, when: small.score < 16, optional: true, timeout_ms: 2500}
outputs: {y: [big.y, alone.y, small.y]}
""",
        None,
    ),
    "each": (
        b"""
steps:
  boxes: {model: detect, inputs: {x: x}}
  read: {model: small, inputs: {x: boxes.boxes}, each: x}
outputs: {y: read.y}
""",
        lambda x: np.stack([x, x + 1, x + 2], 1) + 1,
    ),
}

#: The small model rejects negative numbers.
BAD = -1.0


@dataclass(frozen=True)
class Client:
    """at_s: those of one time call in one turn. leaves_with: is cancelled as a call of this number ends; 0 for none."""

    at_s: float
    values: Sequence[float]
    cancel_after_s: float
    leaves_with: int
    timeout_s: float
    direct: bool
    priority: int
    caller: str


@dataclass(frozen=True)
class Schedule:
    """What clients meet.

    sizes: of batches.
    busy: whether the first model computes something for somebody else when the first of them call.
    max_rows, max_queue_bytes: of the queue.
    drain_s, swap_s: when a drain begins, and when others take the place of all models.
    """

    clients: Sequence[Client]
    devices: int
    sizes: tuple[int, ...]
    busy: bool
    max_rows: int
    max_queue_bytes: float
    drain_s: float
    swap_s: float
    fair_callers: bool
    preserve_order: bool
    max_inline_s: float
    weights: Mapping[str, float]
    batching: BatchingOptions


schedules = st.builds(
    Schedule,
    clients=st.lists(
        st.builds(
            Client,
            at_s=st.sampled_from([0.0, 0.0, 0.0, 0.2, 0.2, 0.2, 1.3]),
            values=st.lists(st.sampled_from([1.0, 2.0, 7.0, 9.0, 13.0, BAD]), min_size=1, max_size=2),
            cancel_after_s=st.sampled_from([inf, inf, inf, inf, 0.0, 0.4, 1.4]),
            leaves_with=st.sampled_from([0, 0, 1, 2, 3]),
            timeout_s=st.sampled_from([inf, inf, inf, 1.5]),
            direct=st.sampled_from([False] * 5 + [True]),
            priority=st.sampled_from([0] * 6 + [5, -1]),
            caller=st.sampled_from([""] * 5 + ["a"]),
        ),
        min_size=2,
        max_size=14,
    ),
    devices=st.sampled_from([1, 1, 2]),
    sizes=st.sampled_from([(1, 2, 4), (1, 2, 4, 8)]),
    busy=st.booleans(),
    max_rows=st.sampled_from([1000, 1000, 6]),
    max_queue_bytes=st.sampled_from([inf, inf, 8 * 20]),
    drain_s=st.sampled_from([inf, inf, 0.5, 2.5]),
    swap_s=st.sampled_from([inf, inf, 0.3, 1.5]),
    fair_callers=st.booleans(),
    preserve_order=st.booleans(),
    max_inline_s=st.sampled_from([0.0, 0.0, 2.0]),
    weights=st.sampled_from([{}, {}, {"small": 3.0}]),
    batching=st.sampled_from([BatchingOptions(), BatchingOptions(), BatchingOptions(max_batch_delay_ms=400)]),
)


@given(st.sampled_from(sorted(PIPELINES)), schedules)
def test_each_fares_as_if_it_were_alone(name: str, schedule: Schedule) -> None:
    text, by_hand = PIPELINES[name]

    async def main() -> None:
        world = World(
            devices=schedule.devices,
            sizes=BatchSizes(schedule.sizes),
            max_rows=schedule.max_rows,
            max_queue_bytes=schedule.max_queue_bytes,
            fair_callers=schedule.fair_callers,
            preserve_order=schedule.preserve_order,
            max_inline_s=schedule.max_inline_s,
            weights=schedule.weights,
            batching=schedule.batching,
        )
        add_model_that_takes_each_alone(world)
        model = world.load(text)

        # 1. Each has its own answer, or its own error.
        others = await begin(world, schedule)
        asked = [ask(world, model, client) for client in schedule.clients]
        *answers, _ = await asyncio.wait_for(asyncio.gather(*asked, swap(world, schedule.swap_s)), 1000)
        await asyncio.gather(*others)
        for client, answer in zip(schedule.clients, answers, strict=True):
            check(client, answer, schedule, by_hand)

        # 2. Nothing is left, and each request and each call is counted once.
        await world.end()
        assert not world.batcher.failures(10)
        assert not world.batcher.queue.room._callers
        through = [answer for client, answer in zip(schedule.clients, answers, strict=True) if not client.direct]
        counted = [(each.outcome, each.requests) for each in world.events if isinstance(each, PipelineEnded)]
        answered = sum(not isinstance(each, BaseException) for each in through)
        too_late = sum(isinstance(each, asyncio.CancelledError) for each in through)  # some had their answer already
        told_answered = sum(requests for outcome, requests in counted if outcome == "answered")
        assert answered <= told_answered <= answered + too_late
        assert sum(requests for _, requests in counted) <= len(through)
        for (called, version), loaded in world.loaded.items():
            told = [each for each in world.events if isinstance(each, BatchExecuted | BatchRejected | CallRepeated)]
            calls = [each for each in told if (each.model, each.version) == (called, version)]
            assert len(calls) == len(loaded.calls) or called == "alone"
        await asyncio.wait_for(model.close(), 1000)

    run_in_fake_time(main())


async def ask(world: World, pipeline: PipelineModel, client: Client) -> object:
    await asyncio.sleep(client.at_s)
    deadline_s = world.loop.time() + client.timeout_s
    model = world.find("small") if client.direct else pipeline
    request = InferenceRequest(
        {"x": rows_of(*client.values)}, deadline_s=deadline_s, priority=client.priority, caller=client.caller
    )
    task = asyncio.create_task(model.infer(request))
    world.at_end_of(client.leaves_with, task.cancel)
    _, pending = await asyncio.wait({task}, timeout=None if client.cancel_after_s == inf else client.cancel_after_s)
    for each in pending:
        each.cancel()
    (answer,) = await asyncio.gather(task, return_exceptions=True)
    return answer


async def begin(world: World, schedule: Schedule) -> list[asyncio.Task[object]]:
    """Everything that is not a client. Returns the requests of somebody else."""
    small = world.find("small")
    asked = [asyncio.create_task(small.infer(InferenceRequest({"x": rows_of(50)}))) for _ in range(schedule.busy)]
    await asyncio.sleep(0.1)
    if schedule.drain_s < inf:
        world.loop.call_later(schedule.drain_s, world.batcher.begin_drain)
    return asked  # type: ignore[return-value]  # nobody looks at the answers


async def swap(world: World, at_s: float) -> None:
    """Other versions take the place of those that all can share."""
    if at_s < inf:
        await asyncio.sleep(at_s)
        old = [world.models[name][1] for name in BODIES]
        for name in BODIES:
            world.add(name, 2)
        world.pipelines.refresh()
        for model in old:
            del world.models[model.name][1]
        await asyncio.gather(*[model.close() for model in old])


def add_model_that_takes_each_alone(world: World) -> None:
    small_y = {"y": world.find("small").signature("serving_default").outputs["y"]}
    model = world.add("alone", 1, lambda inputs: {"y": inputs["x"] * 1}, small_y)
    model._placement.signatures = {
        name: replace(signature, alone={"y": "rows depend on each other"})
        for name, signature in model._placement.signatures.items()
    }


def small(x: Array) -> Array:
    """What the model that direct requests ask computes."""
    return x + 1


def check(client: Client, answer: object, schedule: Schedule, by_hand: Callable[[Array], Array] | None) -> None:
    if isinstance(answer, asyncio.CancelledError):
        assert client.cancel_after_s < inf or client.leaves_with
    elif isinstance(answer, DeadlineExceeded):
        assert client.timeout_s < inf
    elif isinstance(answer, Overloaded):
        assert schedule.max_rows == 6 or schedule.max_queue_bytes < inf or client.timeout_s < inf
    elif isinstance(answer, ShuttingDown):
        assert schedule.drain_s < inf
    elif isinstance(answer, InvalidRequest):
        assert BAD in client.values, f"{client}: {answer}"
    else:
        assert BAD not in client.values
        if client.direct:
            by_hand = small
        if by_hand is not None:
            found = answer.outputs["y"]  # type: ignore[attr-defined] - an answer, as by_hand says
            np.testing.assert_array_equal(found, by_hand(rows_of(*client.values)))
