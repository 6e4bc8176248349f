"""Who holds the handle of a request that has ended holds nothing of it: no tensor, and not the caller that waited.

However it ends, and wherever it was then. Streams and pipelines keep handles longer than answers.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Mapping
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from app.batching.batcher import Batcher
from app.batching.state import BatcherOptions
from app.core.inference import Array
from app.core.reply import Reply
from bench.simulator.peer_policies import WorkConserving
from tests.support.fakes import KEY, FakeDevice, FakeFunction, FakeReply, batch_function, request_now, run_in_fake_time

#: By how it ends: its value, its deadline, and when its caller leaves, in seconds; of calls of a second each.
ENDS: Mapping[str, tuple[float, float, float]] = {
    "answered": (1.0, inf, inf),
    "rejected": (-1.0, inf, inf),
    "failed": (nan, inf, inf),
    "cancelled while it waits": (1.0, inf, 0.3),
    "cancelled while it is computed": (1.0, inf, 1.3),
    "expired while it waits": (1.0, 0.3, inf),
    "expired while it is computed": (1.0, 1.3, inf),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("beside", [0, 2])
def test_of_a_request_that_has_ended_nothing_is_held(end: str, beside: int) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        function = batch_function(FakeFunction())
        batcher = Batcher([FakeDevice()], WorkConserving(), BatcherOptions(100, admission=False), clock=loop.time)

        def submit(value: float, deadline_s: float) -> tuple[Any, list[weakref.ref[Any]], Callable[[], bool]]:
            inputs: dict[str, Array] = {"x": np.full((1, 2), value, np.float32)}
            reply: Reply = FakeReply()
            held: list[weakref.ref[Any]] = [weakref.ref(inputs["x"]), weakref.ref(reply)]
            handle = batcher.submit(KEY, function, request_now(batcher, inputs, 1, reply, deadline_s=deadline_s))
            return handle, held, lambda: held[1]() is None

        first = submit(3.0, inf)
        await asyncio.sleep(0.01)  # it has the device for the first second
        value, deadline_s, leaves_s = ENDS[end]
        handle, held, ended = submit(value, loop.time() + deadline_s)
        others = [submit(5.0 + n, inf) for n in range(beside)]
        if leaves_s < inf:
            await asyncio.sleep(leaves_s)
            handle.cancel()
        await asyncio.sleep(20)
        gc.collect()
        assert ended(), "the caller's reply is held"
        assert [each() for each in held] == [None, None]
        assert all(other[2]() for other in (first, *others))
        assert batcher.idle
        assert handle is not None

    run_in_fake_time(main())
