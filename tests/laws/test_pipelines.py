"""The laws of pipelines, under random arrival, ways, cancellation, expiry, failure, swaps of versions and drain."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from math import inf

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import DeadlineExceeded, InferenceFailed, InvalidRequest, ServingError, ShuttingDown
from app.core.inference import InferenceResponse
from tests.pipelines.pipeline_world import CASCADE, CHAIN, EACH, World, cascade_by_hand, each_by_hand, rows_of
from tests.support.fakes import run_in_fake_time

PIPELINES = {"cascade": CASCADE, "each": EACH, "chain": CHAIN}


@dataclass(frozen=True)
class Call:
    """One client: when it calls, what, and what befalls it. Each row has a number of its own, from `first` on."""

    at_s: float
    pipeline: str
    rows: int
    timeout_s: float
    cancel_after_s: float
    bad: bool


calls = st.lists(
    st.builds(
        Call,
        at_s=st.sampled_from([0.0, 0.1, 0.5, 1.0, 1.5, 2.5, 4.0]),
        pipeline=st.sampled_from(sorted(PIPELINES)),
        rows=st.integers(0, 9),
        timeout_s=st.sampled_from([inf, inf, inf, 0.7, 2.0, 5.0]),
        cancel_after_s=st.sampled_from([inf, inf, inf, 0.0, 0.3, 1.2, 2.2]),
        bad=st.sampled_from([False, False, False, True]),
    ),
    max_size=8,
)


def values(number: int, call: Call) -> list[float]:
    """Those of one request; half of a cascade's rows are for the big model."""
    own = [100.0 * (number + 1) + row if row % 2 else 0.01 * (number + 1) + 0.001 * row for row in range(call.rows)]
    return [*own, -1.0] if call.bad else own


def by_hand(call: Call, own: list[float]) -> dict[str, np.ndarray]:
    if call.pipeline == "cascade":
        return cascade_by_hand(*own)
    return each_by_hand(*own) if call.pipeline == "each" else {"y": (rows_of(*own) + 1) * 10}


class Client:
    def __init__(self, number: int, call: Call) -> None:
        self.call = call
        self.values = values(number, call)
        self.answer: InferenceResponse | ServingError | None = None
        self.cancelled_s = inf
        self.done_s = inf

    async def play(self, world: World, start_s: float) -> None:
        call, loop = self.call, world.loop
        await asyncio.sleep(start_s + call.at_s - loop.time())
        model = world.served[call.pipeline]
        task = world.ask(model, *self.values, timeout_s=call.timeout_s)
        if call.cancel_after_s < inf:
            _, pending = await asyncio.wait({task}, timeout=call.cancel_after_s)
            if pending:
                self.cancelled_s = loop.time()
                task.cancel()
        try:
            self.answer = await task
        except ServingError as error:
            self.answer = error
        except asyncio.CancelledError:
            pass
        self.done_s = loop.time()


@given(calls, st.integers(1, 2), st.sampled_from([inf, 0.6, 2.1]), st.sampled_from([inf, 0.3, 1.7]))
def test_each_request_gets_its_own_rows_whatever_way_they_took(
    schedule: list[Call], devices: int, drain_s: float, swap_s: float
) -> None:
    async def main() -> None:
        # 1. Clients, a swap of a version, and a drain.
        world = World(devices=devices)
        for name, text in PIPELINES.items():
            world.load(text, name)
        clients = [Client(number, call) for number, call in enumerate(schedule)]
        start_s = world.loop.time()
        playing = [client.play(world, start_s) for client in clients]
        await asyncio.gather(*playing, swap(world, swap_s), drain(world, drain_s))

        # 2. What each got; nothing is left, and every model can be closed.
        await world.end()
        for client in clients:
            check(client, start_s, drain_s)
        versions = [version for versions in world.models.values() for version in versions.values()]
        await asyncio.gather(*[model.close() for model in (*world.served.values(), *versions)])

    run_in_fake_time(main())


async def swap(world: World, at_s: float) -> None:
    """The old version ends when its last step is over."""
    if at_s < inf:
        await asyncio.sleep(at_s)
        world.add("big", 2)
        world.pipelines.refresh()
        await world.models["big"].pop(1).close()


async def drain(world: World, at_s: float) -> None:
    if at_s < inf:
        await asyncio.sleep(at_s)
        world.batcher.begin_drain()


def check(client: Client, start_s: float, drain_s: float) -> None:
    call, answer = client.call, client.answer
    if isinstance(answer, InferenceResponse):
        assert not call.bad
        for name, expected in by_hand(call, client.values).items():
            np.testing.assert_allclose(answer.outputs[name], expected.reshape(answer.outputs[name].shape), rtol=1e-6)
    elif isinstance(answer, InvalidRequest):
        assert call.bad
    elif isinstance(answer, DeadlineExceeded):
        assert client.done_s >= start_s + call.at_s + call.timeout_s - 1e-6
    elif isinstance(answer, ShuttingDown):
        assert call.at_s >= drain_s
    elif answer is None:
        assert client.cancelled_s < inf
    else:
        assert not isinstance(answer, InferenceFailed), answer


@given(st.sampled_from([0.1, 0.5, 0.9]), st.integers(1, 3))
def test_nothing_is_computed_after_cancel(after_s: float, rows: int) -> None:
    """The second step of a request that was cancelled while the first was computed never begins."""

    async def main() -> None:
        world = World()
        model = world.load(CHAIN)
        kept, task = world.ask(model, 1), world.ask(model, *range(20, 20 + rows))
        await asyncio.sleep(after_s)
        task.cancel()
        assert (await kept).outputs["y"][0, 0] == 20
        await world.end()
        assert world.computed("big") == {2}

    run_in_fake_time(main())
