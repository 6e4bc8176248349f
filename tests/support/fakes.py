"""Stand-ins for time, devices and models. Time never passes by itself here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from app.batching.batch import BatchInFlight, Execution, execute
from app.batching.batcher import Batcher
from app.batching.function import BatchFunction
from app.batching.isolation import Isolations
from app.batching.queue import RequestQueue
from app.batching.request import LaneKey, PendingRequest, RequestHandle
from app.batching.waiting.lane import Lane
from app.core.batch_sizes import BatchSizes
from app.core.errors import InferenceFailed, InvalidRequest, OutOfMemory
from app.core.inference import Array, ModelSignature, TensorSpec
from app.core.interfaces import answer_of
from app.core.reply import Answer, Outcome, Reply
from app.runtime import RuntimeOptions
from bench.simulator.simulated_time import fake_time, run_in_fake_time

__all__ = ["fake_time", "run_in_fake_time"]  # time does not pass by itself in tests

T = TypeVar("T")


async def infer(  # noqa: PLR0917 - as Batcher.submit
    batcher: Batcher,
    key: LaneKey,
    function: BatchFunction,
    inputs: Mapping[str, Array],
    rows: int,
    deadline_s: float = inf,
    *,
    priority_offset_s: float = 0.0,
    caller: str = "",
) -> Answer:
    """`Batcher.submit`, awaited as Model awaits it."""

    def submit(reply: Reply) -> RequestHandle:
        return batcher.submit(
            key,
            function,
            inputs,
            rows,
            reply,
            deadline_s=deadline_s,
            priority_offset_s=priority_offset_s,
            caller=caller,
        )

    return await answer_of(submit)


class FakeDevice:
    """Computes at once and says so `seconds` later."""

    def __init__(self, seconds: float = 1.0, name: str = "fake:0", replica: int = 0, hardware: int = 0) -> None:
        self.name = name
        self.replica = replica
        self.hardware = hardware or replica
        self.seconds = seconds
        self.closed = False
        self.broken = ""

    def start(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        if self.broken:
            raise RuntimeError(self.broken)
        result = work()
        if isinstance(result, Execution):
            result = result._replace(ended_s=result.started_s + self.seconds)
        asyncio.get_running_loop().call_later(self.seconds, done, result)

    def failure(self, now: float) -> str:
        return self.broken

    def close(self) -> None:
        self.closed = True


class TimedModel(Protocol):
    """last_s: what its last call took. on_device: whether it is called on a device, not on the event loop."""

    last_s: float
    on_device: bool


class TimedDevice(FakeDevice):
    """A device on which each call takes as long as the model says, in simulated time."""

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


class LateDevice(FakeDevice):
    """Begins to compute when its time is over."""

    def start(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        asyncio.get_running_loop().call_later(self.seconds, lambda: done(work()))


class FakeFunction:
    """Doubles 'x'. Remembers the rows of every call; negative values, large calls and NaN fail in their own ways."""

    def __init__(self, memory_rows: int = 10**6) -> None:
        self.calls: list[list[float]] = []
        self.memory_rows = memory_rows

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        x = inputs["x"]
        self.calls.append(x[:, 0].tolist())
        if len(x) > self.memory_rows:
            raise OutOfMemory(f"No memory for {len(x)} rows")
        if np.isnan(x).any():
            raise InferenceFailed("The model failed on NaN")
        if (x < 0).any():
            raise InvalidRequest(f"x must not be negative, got {x.min():g}")
        return {"y": x * 2}

    @property
    def computed(self) -> list[float]:
        """Every distinct row that was computed, in the order in which it first was."""
        return list(dict.fromkeys(value for call in self.calls for value in call))


KEY = LaneKey("m", 1, "serving_default")


def rows_of(value: float, rows: int = 1) -> dict[str, Array]:
    return {"x": np.full((rows, 2), value, np.float32)}


def batch_function(
    run: Callable[[Mapping[str, Array]], dict[str, Array]], largest: int = 4, **more: Any
) -> BatchFunction:
    return BatchFunction(run, BatchSizes.powers_of_two(largest), **more)


def run_batch(function: BatchFunction, requests: Sequence[PendingRequest]) -> tuple[list[Outcome], int]:
    """The outcome of each request, with isolation as the batcher does it, and the number of calls."""
    isolations, outcomes, calls = Isolations(RequestQueue(10**6)), dict[PendingRequest, Outcome](), 0
    batch: BatchInFlight | None = BatchInFlight(Lane(KEY, function), list(requests), "idle")
    while batch is not None:
        execution = execute(function, batch.requests, lambda: 0.0)
        calls += 1
        if execution.mismatch:
            function.stop_batching(execution.mismatch)
        if execution.rejection is None:
            outcomes |= dict(zip(batch.requests, execution.outcomes, strict=True))
        isolations.record_end(batch, execution, 0.0)
        isolation = isolations.next(others_due=False)
        batch = None if isolation is None else isolations.next_group(isolation)
    assert not isolations.open
    return [outcomes[request] for request in requests], calls


class FakeReply:
    """A reply without an event loop."""

    def __init__(self) -> None:
        self.answers: list[object] = []

    def done(self) -> bool:
        return bool(self.answers)

    def set_result(self, result: object, /) -> None:
        self.answers.append(result)

    def set_exception(self, exception: BaseException, /) -> None:
        self.answers.append(exception)


def pending(
    value: float = 1.0, rows: int = 1, arrival_s: float = 0.0, deadline_s: float = float("inf")
) -> PendingRequest:
    return PendingRequest(rows_of(value, rows), rows, FakeReply(), arrival_s, deadline_s)


class FakeLoadedModel:
    """A model in numpy: the default batches, `total` (rank 0) does not, `uneven` does not keep its rows."""

    def __init__(self) -> None:
        self.closed = False
        self.function = FakeFunction()
        rows = TensorSpec("x", np.dtype(np.float32), (None, 2))
        scalar = TensorSpec("x", np.dtype(np.float32), ())
        out = TensorSpec("y", np.dtype(np.float32), (None, 2))
        unknown = TensorSpec("y", np.dtype(np.float32), None)
        self.signatures: Mapping[str, ModelSignature] = {
            "serving_default": ModelSignature("serving_default", {"x": rows}, {"y": out}),
            "total": ModelSignature("total", {"x": scalar}, {"y": TensorSpec("y", np.dtype(np.float32), ())}),
            "uneven": ModelSignature("uneven", {"x": rows}, {"y": unknown}),
            "pair": ModelSignature("pair", {"x": rows, "z": rows}, {"y": out, "w": out}),
        }
        self.wanted: list[tuple[str, ...]] = []

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        self.wanted.append(outputs)
        x = inputs["x"]
        if signature == "total":
            return {"y": np.asarray(x + 1)}
        if signature == "uneven":
            return {"y": np.unique(x)}
        if signature == "pair":
            both = {"y": x * 2, "w": inputs["z"] * 3}
            return {name: both[name] for name in outputs or both}
        return self.function(inputs)

    def close(self) -> None:
        self.closed = True


class FakeRuntime:
    """Loads a FakeLoadedModel from any folder."""

    devices: Sequence[str] = ("fake:0",)
    parallel = False

    def __init__(self, options: RuntimeOptions | None = None) -> None:
        self.options = options or RuntimeOptions()
        self.batches_in_flight = self.options.batches_in_flight or 1

    def load(self, path: Path) -> FakeLoadedModel:
        if not (path / "saved_model.pb").exists():
            raise InferenceFailed(f"{path.parent.name}/{path.name} holds no saved_model.pb")
        return FakeLoadedModel()
