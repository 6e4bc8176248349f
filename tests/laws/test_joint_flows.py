"""Requests that arrive in one turn of the event loop and go through a pipeline together fare as if each were alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import DeadlineExceeded, InvalidRequest, Overloaded, ShuttingDown
from app.core.events import PipelineEnded
from app.core.inference import Array, InferenceRequest
from tests.pipelines.pipeline_world import CASCADE, World, rows_of
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
    values: Sequence[float]
    cancel_after_s: float
    timeout_s: float


@dataclass(frozen=True)
class Schedule:
    """All clients call in one turn.

    busy: whether the first model computes something for somebody else then.
    max_rows: of the queue.
    drain_s: when a drain begins.
    """

    clients: Sequence[Client]
    devices: int
    busy: bool
    max_rows: int
    drain_s: float


schedules = st.builds(
    Schedule,
    clients=st.lists(
        st.builds(
            Client,
            values=st.lists(st.sampled_from([BAD, 1.0, 2.0, 7.0, 9.0, 13.0]), min_size=1, max_size=3),
            cancel_after_s=st.sampled_from([inf, inf, inf, 0.0, 0.4, 1.4]),
            timeout_s=st.sampled_from([inf, inf, 1.5]),
        ),
        min_size=2,
        max_size=7,
    ),
    devices=st.integers(1, 2),
    busy=st.booleans(),
    max_rows=st.sampled_from([1000, 6]),
    drain_s=st.sampled_from([inf, 0.5, 2.5]),
)


@given(st.sampled_from(sorted(PIPELINES)), schedules)
def test_each_fares_as_if_it_were_alone(name: str, schedule: Schedule) -> None:
    text, by_hand = PIPELINES[name]

    async def main() -> None:
        world = World(devices=schedule.devices, max_rows=schedule.max_rows)
        add_model_that_takes_each_alone(world)
        model = world.load(text)

        async def ask(client: Client) -> object:
            task = world.ask(model, *client.values, timeout_s=client.timeout_s)
            _, pending = await asyncio.wait(
                {task}, timeout=None if client.cancel_after_s == inf else client.cancel_after_s
            )
            for each in pending:
                each.cancel()
            (answer,) = await asyncio.gather(task, return_exceptions=True)
            return answer

        # 1. Each has its own answer, or its own error.
        others = await begin(world, schedule)
        answers = await asyncio.wait_for(asyncio.gather(*map(ask, schedule.clients)), 1000)
        await asyncio.gather(*others)
        for client, answer in zip(schedule.clients, answers, strict=True):
            check(client, answer, schedule, by_hand)

        # 2. Nothing is left, and each is counted once.
        await world.end()
        counted = [(each.outcome, each.requests) for each in world.events if isinstance(each, PipelineEnded)]
        answered = sum(not isinstance(each, BaseException) for each in answers)
        assert sum(requests for outcome, requests in counted if outcome == "answered") == answered
        assert sum(requests for _, requests in counted) <= len(answers)
        await asyncio.wait_for(model.close(), 1000)

    run_in_fake_time(main())


async def begin(world: World, schedule: Schedule) -> list[asyncio.Task[object]]:
    """Everything that is not a client. Returns the requests of somebody else."""
    small = world.find("small")
    asked = [asyncio.create_task(small.infer(InferenceRequest({"x": rows_of(50)}))) for _ in range(schedule.busy)]
    await asyncio.sleep(0.1)
    if schedule.drain_s < inf:
        world.loop.call_later(schedule.drain_s, world.batcher.begin_drain)
    return asked  # type: ignore[return-value]  # nobody looks at the answers


def add_model_that_takes_each_alone(world: World) -> None:
    small_y = {"y": world.find("small").signature("serving_default").outputs["y"]}
    model = world.add("alone", 1, lambda inputs: {"y": inputs["x"] * 1}, small_y)
    model._placement.signatures = {
        name: replace(signature, alone={"y": "rows depend on each other"})
        for name, signature in model._placement.signatures.items()
    }


def check(client: Client, answer: object, schedule: Schedule, by_hand: Callable[[Array], Array] | None) -> None:
    if isinstance(answer, asyncio.CancelledError):
        assert client.cancel_after_s < inf
    elif isinstance(answer, DeadlineExceeded):
        assert client.timeout_s < inf
    elif isinstance(answer, Overloaded):
        assert schedule.max_rows == 6 or client.timeout_s < inf
    elif isinstance(answer, ShuttingDown):
        assert schedule.drain_s < inf
    elif isinstance(answer, InvalidRequest):
        assert BAD in client.values, f"{client}: {answer}"
    else:
        assert BAD not in client.values
        if by_hand is not None:
            found = answer.outputs["y"]  # type: ignore[attr-defined] - an answer, as by_hand says
            np.testing.assert_array_equal(found, by_hand(rows_of(*client.values)))
