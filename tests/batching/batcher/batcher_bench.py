"""A batcher over fake devices and a fake model, in fake time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from math import inf
from typing import Any

import numpy as np

from app.batching.batcher import Batcher
from app.batching.policy import BatchingOptions, SelfTuning
from app.batching.request import LaneKey
from app.batching.state import BatcherOptions
from app.core.burst import Burst
from app.core.events import BatchExecuted, Event
from app.core.interfaces import Cancellable
from app.core.reply import Answer
from tests.support.fakes import (
    KEY,
    FakeDevice,
    FakeFunction,
    FakeReply,
    batch_function,
    infer,
    request_now,
    rows_of,
    run_in_fake_time,
)

#: Estimates by which every call is quick.
QUICK = {1: 0.001, 2: 0.001, 4: 0.001}


class Coalesced(FakeReply):
    """The reply of several requests of one row each."""

    def __init__(self, requests: int) -> None:
        super().__init__()
        self.rows = [1] * requests
        self.own = [FakeReply() for _ in range(requests)]

    def done(self) -> bool:
        return super().done() or all(reply.done() for reply in self.own)

    def separate(self) -> list[FakeReply]:
        return self.own


class Bench:
    """A batcher over fake devices that take one second a batch, and what it said."""

    def __init__(
        self,
        *,
        devices: int = 1,
        delay_s: float = 0.0,
        max_rows: int = 100,
        largest: int = 4,
        inline_s: float = 0.0,
        admission: bool = True,
        tick_s: float = 0.0,  # how far each look at the clock moves it: calls on the event loop take that long
    ) -> None:
        ticks = count()
        self.devices: Sequence[FakeDevice] = [FakeDevice(hardware=number) for number in range(devices)]
        self.events: list[Event] = []
        self.loop = asyncio.get_running_loop()
        self.burst = Burst(self.loop.time)
        self.batcher = Batcher(
            self.devices,
            SelfTuning(BatchingOptions(max_batch_delay_ms=1000 * delay_s)),
            BatcherOptions(max_rows, max_inline_s=inline_s, admission=admission),
            self.events.append,
            lambda: self.loop.time() + tick_s * next(ticks),
            burst=self.burst,
        )
        self.model = FakeFunction()
        self.function = batch_function(self.model, largest)
        self.start_s = self.loop.time()

    @property
    def now(self) -> float:
        return self.loop.time() - self.start_s

    def send(
        self, value: float, rows: int = 1, timeout_s: float = inf, key: LaneKey = KEY, priority_offset_s: float = 0.0
    ) -> asyncio.Task[Answer]:
        deadline_s = self.loop.time() + timeout_s
        call = infer(
            self.batcher,
            key,
            self.function,
            rows_of(value, rows),
            rows,
            deadline_s,
            priority_offset_s=priority_offset_s,
        )
        return asyncio.create_task(call)

    def coalesce(self, *values: float, timeout_s: float = inf) -> tuple[Coalesced, Cancellable | None]:
        """Submits a request of one row for each value, all as one."""
        reply, now, rows = Coalesced(len(values)), self.loop.time(), len(values)
        inputs = {"x": np.array([[value, value] for value in values], np.float32).reshape(-1, 2)}
        handle = self.batcher.submit_coalesced(
            KEY,
            self.function,
            request_now(self.batcher, inputs, rows, reply, arrivals_s=[now] * rows, deadline_s=now + timeout_s),
        )
        return reply, handle

    @property
    def reasons(self) -> list[str]:
        return [event.reason for event in self.events if isinstance(event, BatchExecuted)]


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def scenario(make: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_in_fake_time(make())
