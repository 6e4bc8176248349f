"""The law of batch sizes of steps: calls are as large as pays, in whatever moment they were measured first.

In simulated time. What a server measures at its start may be off by a factor of two, since other models are loaded
beside it; and now and then a call is held up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import numpy as np
import pytest

from app.core.batch_sizes import BatchSizes
from app.core.inference import Array
from tests.pipelines.pipeline_world import BODIES, CASCADE, World
from tests.support.fakes import run_in_fake_time

SIZES = BatchSizes.powers_of_two(64)

#: Milliseconds of a call, by SIZES: MobileNetV3 small and large, as measured on one core.
CALL_MS = {
    "small": (2.9, 3.0, 3.7, 4.9, 7.5, 13.3, 24.8),
    "big": (3.7, 4.6, 6.6, 10.3, 17.2, 34.2, 69.4),
}

#: Of the rows that go on to the big model.
SHARE = 0.3

#: Milliseconds of a row if each model has full calls.
FULL_ROW_MS = CALL_MS["small"][-1] / 64 + SHARE * CALL_MS["big"][-1] / 64
CALLERS = 128


class Server:
    """Serves a cascade. Calls of more than `good_rows` took twice as long when they were measured before requests.

    held_up: the share of calls that take four times as long.
    """

    def __init__(self, seed: int, good_rows: int = 64, held_up: float = 0.0) -> None:
        self.spent_ms = 0.0
        self._random = np.random.default_rng(seed)
        self._held_up = held_up
        self._world = World(sizes=SIZES)
        for name, call_ms in CALL_MS.items():
            true_ms = dict(zip(SIZES.allowed, call_ms, strict=True))
            self._add(name, true_ms, {size: 1e-3 * each * (1 + (size > good_rows)) for size, each in true_ms.items()})
        self._cascade = self._world.load(CASCADE)

    def _add(self, name: str, call_ms: Mapping[int, float], measured: Mapping[int, float]) -> None:
        body, outputs = BODIES[name]

        def timed(inputs: Mapping[str, Array]) -> dict[str, Array]:
            own_ms = call_ms[len(inputs["x"])]
            self.spent_ms += own_ms
            (device,) = self._world.devices
            device.seconds = 1e-3 * own_ms * (4 if self._random.random() < self._held_up else 1)
            return body(inputs)

        self._world.add(name, 1, timed, outputs, costs=measured)

    async def row_ms(self, rows: int) -> float:
        """What calls take for a row, the time in which they are held up left out; each caller asks again and again."""
        spent_ms = self.spent_ms

        async def ask() -> None:
            for _ in range(rows // CALLERS):
                await self._world.ask(self._cascade, 1.0 if self._random.random() < SHARE else 9.0)

        await asyncio.gather(*[ask() for _ in range(CALLERS)])
        return (self.spent_ms - spent_ms) / (rows // CALLERS * CALLERS)


def test_steps_of_several_requests_fill_calls() -> None:
    """What is left of them after a step fits into no call as it is: 45 and 45 rows, or 19 of 32."""

    async def play() -> float:
        return await Server(0).row_ms(20 * CALLERS)

    assert run_in_fake_time(play()) < 1.1 * FULL_ROW_MS


@pytest.mark.not_traced
@pytest.mark.parametrize("good_rows", [1, 2, 4, 8, 16, 32])
def test_a_server_that_measured_larger_calls_in_a_bad_moment_soon_has_the_best_sizes(good_rows: int) -> None:
    async def play() -> float:
        return await Server(good_rows, good_rows, held_up=0.02).row_ms(20 * CALLERS)

    assert run_in_fake_time(play()) < 1.1 * FULL_ROW_MS
