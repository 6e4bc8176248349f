"""A fake device on which each call takes as long as the model says, in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from app.batching.batch import Execution
from tests.support.fakes import FakeDevice

T = TypeVar("T")


class TimedModel(Protocol):
    """last_s: what its last call took. on_device: whether it is called on a device, not on the event loop."""

    last_s: float
    on_device: bool


class TimedDevice(FakeDevice):
    """Takes as long as the model's call."""

    def __init__(self, model: TimedModel) -> None:
        super().__init__()
        self._model = model

    def start(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        self._model.on_device = True
        result = work()
        self._model.on_device = False
        assert isinstance(result, Execution)
        ended = result._replace(ended_s=result.started_s + self._model.last_s)
        asyncio.get_running_loop().call_later(self._model.last_s, done, ended)
