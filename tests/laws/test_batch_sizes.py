"""The law of batch sizes: under load the size is soon called at which most rows are answered, in simulated time.

Calls on the event loop follow each other, those on two devices run side by side. What a call takes beside its own
seconds, and what it takes when it is made first, no measurement before requests tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import numpy as np
import pytest

from app.batching.batcher import Batcher
from app.batching.policy import SelfTuning
from app.batching.request import LaneKey
from app.batching.state import BatcherOptions
from app.core.inference import Array
from tests.support.fakes import TimedDevice, batch_function, infer, run_in_fake_time

KEY = LaneKey("m", 1, "s", shape=((1,),))
X = np.zeros((1, 1), np.float32)
ROW_S = 0.8e-3
CALLERS = 200


class Model:
    """Takes the same time for each row, and `cold` times as long when it is called with so many rows first.

    From `dear` rows in a call on a row takes 1.6 times as long.

    `sizes` has the rows of its calls. What it takes on the event loop passes there: `inline_s`.
    """

    def __init__(self, cold: float, dear: int = 1000) -> None:
        self.sizes: list[int] = []
        self.on_device = False
        self.inline_s = 0.0
        self.last_s = 0.0
        self._cold, self._dear = cold, dear

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        rows = len(inputs["x"])
        self.last_s = rows * ROW_S * (1 if rows in self.sizes else self._cold) * (1.6 if rows >= self._dear else 1)
        self.sizes.append(rows)
        if not self.on_device:
            self.inline_s += self.last_s
        return {"y": inputs["x"]}


async def under_load(model: Model, devices: int, requests: int) -> None:
    """So many callers ask again and again."""
    loop_time = asyncio.get_running_loop().time

    def clock() -> float:
        return loop_time() + model.inline_s

    function = batch_function(model, 64)
    slots = [TimedDevice(model) for _ in range(devices)]
    batcher = Batcher(slots, SelfTuning(), BatcherOptions(1000, max_inline_s=1e-3), clock=clock)

    async def call_again() -> None:
        for _ in range(requests):
            await infer(batcher, KEY, function, {"x": X}, 1)

    for _ in range(8):  # single rows become known to be quick
        await infer(batcher, KEY, function, {"x": X}, 1)
    await asyncio.gather(*[infer(batcher, KEY, function, {"x": X}, 1) for _ in range(8)])
    await asyncio.gather(*[call_again() for _ in range(CALLERS)])


@pytest.mark.parametrize("cold", [1.0, 1.5, 1.9])
def test_two_devices_are_soon_used_where_single_rows_are_quick_on_the_event_loop(cold: float) -> None:
    """A row costs the same in all calls, but two calls on devices run side by side."""
    model = Model(cold)
    run_in_fake_time(under_load(model, devices=2, requests=60))
    assert sum([size for size in model.sizes if size == 1]) < 50
    assert sum([size for size in model.sizes if size >= 8]) > 0.95 * CALLERS * 60


def test_a_size_at_which_rows_are_much_dearer_is_called_seldom() -> None:
    """Each is tried three times beside the calls in flight, and one batch of 256 tries the next."""
    model = Model(1.0, dear=32)
    run_in_fake_time(under_load(model, devices=2, requests=60))
    assert sum([size >= 32 for size in model.sizes]) <= 2 * (3 + 2) + len(model.sizes) // 256
    assert model.sizes.count(16) > 0.9 * (len(model.sizes) - 8)
