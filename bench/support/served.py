"""Models and pipelines served in this process by Ferry's engine, without HTTP, and callers that keep it busy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from app.config.settings import Settings
from app.core.burst import Burst
from app.core.events import BatchExecuted, tell_all
from app.core.inference import Array, InferenceRequest
from app.instrumentation import logs
from app.instrumentation.counts import Counts
from app.instrumentation.metrics import Metrics
from app.instrumentation.model_facts import ModelFacts
from app.instrumentation.statistics import ModelStatistics
from app.server.engine import Engine

SIGNATURE = "serving_default"

#: As over HTTP, each request has a deadline.
_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class Run:
    """The answers that callers got, and the calls of models meanwhile."""

    answered: int
    seconds: float
    calls: Sequence[BatchExecuted]

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.answered / self.seconds

    @property
    def called_s(self) -> float:
        """Seconds inside the models, without what Ferry does to put inputs together and take outputs apart."""
        return sum(call.compute_s - call.input_s - call.output_s for call in self.calls)

    def mean_rows(self, model: str) -> float:
        """Rows in a call of this model."""
        rows = [call.rows for call in self.calls if call.model == model]
        return sum(rows) / len(rows) if rows else 0.0


@dataclass(slots=True)
class Served:
    """An engine whose models are loaded and tuned."""

    engine: Engine
    calls: list[BatchExecuted] = field(default_factory=list)
    facts: ModelFacts = field(default_factory=ModelFacts)

    def model(self, name: str) -> Any:
        """What protocols call: a Model or a PipelineModel."""
        return self.engine.repository.resolve(name)

    def direct(self, name: str) -> Callable[[dict[str, Array]], dict[str, Array]]:
        """A call of the model as its batches make it, without the batcher."""
        loaded = self.model(name)._placement.loaded
        return lambda inputs: loaded.run(SIGNATURE, inputs, ())

    async def ask(self, name: str, inputs: dict[str, Array]) -> dict[str, Array]:
        deadline_s = time.monotonic() + _DEADLINE_S
        answer = await self.model(name).infer(InferenceRequest(inputs, deadline_s=deadline_s))
        return answer.outputs

    async def loop(self, ask: Callable[[int], Awaitable[Any]], callers: int, seconds: float) -> Run:
        """Each caller sends its next request, by a number that goes up, as soon as the last one is answered."""
        turns, answered = count(), 0

        async def call() -> None:
            nonlocal answered
            while time.perf_counter() < end_s:
                await ask(next(turns))
                answered += 1

        self.calls.clear()
        begin_s = time.perf_counter()
        end_s = begin_s + seconds
        await asyncio.gather(*[call() for _ in range(callers)])
        return Run(answered, time.perf_counter() - begin_s, list(self.calls))


@asynccontextmanager
async def served(models: Path, cores: int, **settings: Any) -> AsyncIterator[Served]:
    """Serves a folder of models by one call of one thread for each core, and waits until they are tuned.

    `settings` are Ferry's, and override those.
    """
    counts, facts, calls = Counts(), ModelFacts(), list[BatchExecuted]()
    own = {BatchExecuted: calls.append}
    heard = [each.subscriptions for each in (counts, ModelStatistics(counts), Metrics(counts, facts), facts)]
    engine = Engine(
        Settings(
            **{
                "models": models,
                "ready_when": "tuned",
                "wait_for_models": True,
                "settle_s": 0.0,
                "poll_interval_s": 0.2,
                "intra_op_threads": 1,
                "batches_in_flight": cores,
                "variant_cache": str(models.parent / "variants"),
                **settings,
            }
        ),
        None,
        tell_all(*heard, logs.SUBSCRIPTIONS, own),
        inf,
        Burst(),
    )
    await engine.start()
    try:
        yield Served(engine, calls, facts)
    finally:
        await engine.close(drained=await engine.drain())


def save(folder: Path, name: str, body: Callable[..., Any], *tracked: Any, **inputs: Any) -> None:
    """A SavedModel as version 1 of the model `name`.

    Args:
        tracked: what holds the variables of `body`.
        inputs: the TensorSpecs of its arguments.
    """
    module = tf.Module()
    module.tracked = list(tracked)
    specs = [tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in inputs.items()]
    module.call = tf.function(body, input_signature=specs)
    tf.saved_model.save(module, str(folder / name / "1"), signatures={SIGNATURE: module.call})


def put_pipeline(folder: Path, name: str, text: str) -> None:
    """Version 1 of a pipeline."""
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "1" / "pipeline.yaml").write_text(text)


def apart(found: Array, expected: Array) -> float:
    """The furthest difference, relative to the largest number."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())
