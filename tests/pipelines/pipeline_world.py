"""Pipelines over models in numpy, on fake devices, in fake time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Any, TypeVar

import numpy as np

from app.batching.batcher import Batcher
from app.batching.policy import DEFAULTS, BatchingOptions, SelfTuning
from app.batching.state import BatcherOptions
from app.core.batch_sizes import BatchSizes
from app.core.errors import InferenceFailed, InvalidRequest, ModelNotFound
from app.core.events import Event, PipelineEnded
from app.core.inference import Array, InferenceRequest, InferenceResponse, ModelSignature, TensorSpec
from app.model import Model
from app.pipelines.folding import FoldLimits
from app.pipelines.pipeline_model import PipelineModel
from app.pipelines.served_pipelines import ServedPipelines
from app.placement import RequestPlacement
from tests.support.fakes import FakeDevice, run_in_fake_time

T = TypeVar("T")

FLOAT32 = np.dtype(np.float32)
SIZES = BatchSizes((1, 2, 4, 8))
LIMITS = FoldLimits(1000, 1 << 20)

X = TensorSpec("x", FLOAT32, (None, 2))
Y = TensorSpec("y", FLOAT32, (None, 2))

#: From the inputs to the outputs of a model.
Body = Callable[[Mapping[str, Array]], dict[str, Array]]


def small(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Adds one, and says how sure it is. Rejects negative numbers."""
    x = inputs["x"]
    if (x < 0).any():
        raise InvalidRequest("x must not be negative")
    return {"score": x.sum(1), "y": x + 1}


def big(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Ten times. Fails for 13."""
    if (inputs["x"] == 13).any():
        raise InferenceFailed("the big model failed")
    return {"y": inputs["x"] * 10}


def detect(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Three boxes in each row."""
    x = inputs["x"]
    return {"boxes": np.stack([x, x + 1, x + 2], 1)}


BODIES: Mapping[str, tuple[Body, dict[str, TensorSpec]]] = {
    "small": (small, {"score": TensorSpec("score", FLOAT32, (None,)), "y": Y}),
    "big": (big, {"y": Y}),
    "detect": (detect, {"boxes": TensorSpec("boxes", FLOAT32, (None, 3, 2))}),
}

#: The big model is asked where the small one is not sure.
CASCADE = b"""
steps:
  small: {model: small, inputs: {x: x}}
  big: {model: big, inputs: {x: x}, when: small.score < 10}
outputs: {y: [big.y, small.y], score: small.score}
"""

#: The small model reads each box.
EACH = b"""
steps:
  boxes: {model: detect, inputs: {x: x}}
  read: {model: small, inputs: {x: boxes.boxes}, each: x}
outputs: {y: read.y, score: read.score}
"""

#: What the big model fails at, or is late with, is left to the small one.
OPTIONAL = b"""
steps:
  small: {model: small, inputs: {x: x}}
  big: {model: big, inputs: {x: x}, optional: true, timeout_ms: 2500}
outputs: {y: [big.y, small.y]}
"""

#: One after the other.
CHAIN = b"""
steps:
  first: {model: small, inputs: {x: x}}
  second: {model: big, inputs: {x: first.y}}
outputs: {y: second.y}
"""

#: Side by side.
TWO = b"""
steps:
  small: {model: small, inputs: {x: x}}
  big: {model: big, inputs: {x: x}}
outputs: {small: small.y, big: big.y}
"""

#: A step that needs what part of the rows went through, and what all did.
JOINED = b"""
steps:
  small: {model: small, inputs: {x: x}}
  big: {model: big, inputs: {x: x}, when: small.score < 10}
  last: {model: big, inputs: {x: [big.y, small.y]}}
outputs: {y: last.y, score: small.score}
"""


class NumpyModel:
    """A model of one signature; it notes what it computed: of each call the first numbers of its first input."""

    def __init__(self, body: Body, outputs: dict[str, TensorSpec], inputs: dict[str, TensorSpec]) -> None:
        self.signatures: Mapping[str, ModelSignature] = {
            "serving_default": ModelSignature("serving_default", inputs, outputs)
        }
        self.calls: list[list[float]] = []
        self.closed = False
        self._body = body

    def run(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        assert not self.closed
        self.calls.append([row.flat[0].item() for row in map(np.asarray, next(iter(inputs.values()))) if row.size])
        return self._body(inputs)

    def close(self) -> None:
        self.closed = True

    @property
    def computed(self) -> set[float]:
        """Every distinct row, by its first number."""
        return {value for call in self.calls for value in call}


class QuickModel(NumpyModel):
    """May be called twice, so that nodes of trees are computed as they are supplied. Nobody checks its answers."""

    def run_plain(self, signature: str, inputs: Mapping[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
        raise AssertionError("It was checked")

    def stop_variants(self, signature: str) -> None:
        raise AssertionError("It was checked")


class _Device(FakeDevice):
    """Tells `ending` when a call ends, before the batcher is told."""

    def __init__(self, seconds: float, number: int, ending: Callable[[], None]) -> None:
        super().__init__(seconds, hardware=number)
        self._ending = ending

    def start(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        def end(result: T) -> None:
            self._ending()
            done(result)

        super().start(work, end)


class World:
    """A batcher, models by name and version, and the pipelines over them. A call takes a second.

    Args:
        batching: of all models.
        max_inline_s: calls that take less are made on the event loop; their models are QuickModels.
        sizes: of their batches.
        options: of the batcher.
    """

    def __init__(
        self,
        *,
        devices: int = 1,
        max_rows: int = 1000,
        seconds: float = 1.0,
        limits: FoldLimits = LIMITS,
        batching: BatchingOptions = DEFAULTS,
        max_inline_s: float = 0.0,
        sizes: BatchSizes = SIZES,
        **options: Any,
    ) -> None:
        self.sizes = sizes
        self.loop = asyncio.get_running_loop()
        self.events: list[Event] = []
        self.devices = [_Device(seconds, number, self._call_ends) for number in range(devices)]
        self._calls_ended = 0
        self._at_ends: dict[int, list[Callable[[], object]]] = {}
        self.batcher = Batcher(
            self.devices,
            SelfTuning(batching),
            BatcherOptions(max_rows, max_inline_s=max_inline_s, **options),
            self.events.append,
            self.loop.time,
        )
        self.batcher.shadow._spent_s = inf  # no check is due
        self._make = QuickModel if max_inline_s else NumpyModel
        self.models: dict[str, dict[int, Model]] = {}
        self.loaded: dict[tuple[str, int], NumpyModel] = {}
        self.labels: dict[str, dict[str, int]] = {}
        self.served: dict[str, PipelineModel] = {}
        self.pipelines = ServedPipelines(self.find, self.batcher, sizes, 0, limits, self.loop.time, self.events.append)
        for name in BODIES:
            self.add(name)

    def add(
        self,
        name: str,
        version: int = 1,
        body: Body | None = None,
        outputs: Any = None,
        inputs: Any = None,
        *,
        costs: Mapping[int, float] | None = None,
    ) -> Model:
        """`costs` are the seconds of its calls by rows, as they were measured before requests."""
        own, specs = BODIES.get(name, (body, outputs))
        loaded = self.loaded[name, version] = self._make(body or own, outputs or specs, inputs or {"x": X})
        measured = {} if costs is None else {"serving_default": costs}
        model = Model(RequestPlacement(name, version, loaded, self.sizes, costs=measured), self.batcher)
        self.models.setdefault(name, {})[version] = model
        self.batcher.add_version(name)
        return model

    def find(self, name: str, version: int | None = None, label: str | None = None) -> Model:
        versions = self.models.get(name, {})
        if label is not None:
            version = self.labels.get(name, {}).get(label)
        found = versions.get(max(versions) if version is None and versions else version or 0)
        if found is None:
            raise ModelNotFound(f"Servable not found for request: {name}")
        return found

    def load(self, text: bytes, name: str = "pipeline") -> PipelineModel:
        model = self.served[name] = self.pipelines.load(name, 1, text)
        return model

    def ask(
        self,
        model: PipelineModel,
        *rows: float,
        timeout_s: float = inf,
        outputs: tuple[str, ...] = (),
        priority: int = 0,
    ) -> asyncio.Task[InferenceResponse]:
        """A request of one row for each number."""
        deadline_s = self.loop.time() + timeout_s
        request = InferenceRequest({"x": rows_of(*rows)}, outputs=outputs, deadline_s=deadline_s, priority=priority)
        return asyncio.create_task(model.infer(request))

    def computed(self, name: str, version: int = 1) -> set[float]:
        return self.loaded[name, version].computed

    def at_end_of(self, number: int, then: Callable[[], object]) -> None:
        """Calls `then` as the call of this number ends on a device, in the turn in which the batcher is told of it."""
        self._at_ends.setdefault(number, []).append(then)

    def _call_ends(self) -> None:
        self._calls_ended += 1
        for then in self._at_ends.pop(self._calls_ended, ()):
            then()

    async def end(self) -> None:
        """Nothing is left of any request."""
        await self.batcher.drain()
        assert self.batcher.queue.rows == self.batcher.queue.room.rows == 0
        assert self.batcher.idle


def rows_of(*values: float) -> Array:
    return np.array([[value, value] for value in values], np.float32).reshape(-1, 2)


def cascade_by_hand(*values: float) -> dict[str, Array]:
    x = rows_of(*values)
    score = x.sum(1)
    return {"y": np.where(score[:, None] < 10, x * 10, x + 1), "score": score}


def each_by_hand(*values: float) -> dict[str, Array]:
    boxes = detect({"x": rows_of(*values)})["boxes"]
    return {"y": boxes + 1, "score": boxes.sum(2)}


def ended(world: World) -> list[tuple[str, int, int]]:
    """Outcome, requests and rows of each flow."""
    return [(each.outcome, each.requests, each.rows) for each in world.events if isinstance(each, PipelineEnded)]


async def moment(seconds: float = 0.1) -> None:
    await asyncio.sleep(seconds)


def scenario(play: Callable[[World], Awaitable[None]], **options: float) -> None:
    """Plays in a World with these options, in fake time; at the end nothing is left."""

    async def main() -> None:
        world = World(**options)  # type: ignore[arg-type]  # whole numbers where they have to be
        await play(world)
        await world.end()

    run_in_fake_time(main())
