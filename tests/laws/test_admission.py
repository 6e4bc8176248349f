"""Who is accepted is answered in time, and no one is rejected who would be, where calls vary: in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from app.batching.batcher import Batcher
from app.batching.function import BatchFunction
from app.batching.request import LaneKey
from app.batching.state import BatcherOptions
from app.core.batch_sizes import BatchSizes
from app.core.errors import WouldBeLate
from app.core.inference import Array
from app.core.reply import Answer
from bench.simulator.peer_policies import WorkConserving
from bench.simulator.simulation import SimulatedDevice
from tests.support.fakes import FakeReply, request_now, run_in_fake_time

CALL_S = 0.1

#: Of calls, normally distributed: their mean deviation is 16 %.
DEVIATION_S = 0.02


@dataclass
class Line:
    """Requests of one row, each a call of its own, that arrive together."""

    seed: int
    lanes: int = 1

    def play(self, ahead: int, times: float) -> tuple[int, int, int]:
        """Requests that had so many times the mean of the line, with their own call: sent, accepted and in time."""
        return run_in_fake_time(self._play(ahead, times))

    async def _play(self, ahead: int, times: float) -> tuple[int, int, int]:
        loop, random = asyncio.get_running_loop(), np.random.default_rng(self.seed)
        device = SimulatedDevice()

        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            device.call_s = float(random.normal(CALL_S, DEVIATION_S))
            return {"y": inputs["x"]}

        functions = [BatchFunction(run, BatchSizes((1,)), initial_estimates={1: CALL_S}) for _ in range(self.lanes)]
        batcher = Batcher([device], WorkConserving(), BatcherOptions(10_000), clock=loop.time)
        row = {"x": np.zeros((1, 1), np.float32)}

        def send(number: int, timeout_s: float) -> FakeReply:
            reply, lane = FakeReply(), number % self.lanes
            key = LaneKey("m", 1, str(lane))
            batcher.submit(
                key, functions[lane], request_now(batcher, row, 1, reply, deadline_s=loop.time() + timeout_s)
            )
            return reply

        for number in range(64):  # what calls cost, and how they vary
            send(number, 1000.0)
        await asyncio.sleep(10.0)

        sent, replies = 0, []
        for _ in range(40):
            for number in range(ahead):
                send(number, 1000.0)
            await asyncio.sleep(0.0)
            try:
                sent += 1
                replies.append(send(ahead, times * (ahead + 1) * CALL_S))
            except WouldBeLate:
                pass
            await asyncio.sleep(2 * (ahead + 1) * CALL_S)
        return sent, len(replies), sum([isinstance(reply.answers[0], Answer) for reply in replies])


@pytest.mark.parametrize("lanes", [1, 4])
def test_behind_a_line_what_is_accepted_is_in_time_in_999_of_1000(lanes: int) -> None:
    """Behind short and long lines, of requests that have from 1.1 to 2 times the mean."""
    outcomes = [
        Line(seed, lanes).play(ahead, times)
        for ahead in (1, 2, 5, 20)
        for seed in range(2)
        for times in (1.1, 1.2, 1.3, 1.4, 1.5, 1.7, 2.0)
    ]
    _, accepted, in_time = map(sum, zip(*outcomes, strict=True))
    assert accepted > 1000
    assert in_time >= 0.999 * accepted


@pytest.mark.parametrize("lanes", [1, 4])
def test_behind_a_long_line_who_has_a_fifth_more_than_the_mean_is_accepted(lanes: int) -> None:
    """One call takes up to 1.64 times its mean in 999 of 1000, a hundred together 1.06 times theirs."""
    sent, accepted, _ = Line(1, lanes).play(100, 1.2)
    assert accepted >= 0.9 * sent
