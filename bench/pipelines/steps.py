"""Pipelines of 1, 2 and 4 steps of a model that does next to nothing, beside plain requests to it.

Processor time of all that this process does for a request. A step costs what a pipeline of n steps takes, divided by n,
beyond a plain request. Predicted: all callers send together, so they go as one, and are joined once and taken apart
once: the first step costs about what a plain request does, each further one 6 us (48 where each went alone).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import numpy as np
import tensorflow as tf

from bench.pipelines.figures import Figures
from bench.pipelines.options import Options, in_turn, spread
from bench.pipelines.served import Run, Served, apart, put_pipeline, save, served

_STEPS = (1, 2, 4)
_ROW = np.ones((1, 4), np.float32)


async def measure(folder: Path, options: Options) -> Figures:
    models = folder / "models"
    save(models, "quick", lambda x: {"y": x + 1}, x=tf.TensorSpec([None, 4], tf.float32))
    for steps in _STEPS:
        put_pipeline(models, f"steps{steps}", _pipeline(steps))
    async with served(models, options.cores) as server:
        furthest = [
            apart((await server.ask(name, {"x": _ROW}))["y"], _ROW + steps)
            for name, steps in {"quick": 1, **{f"steps{steps}": steps for steps in _STEPS}}.items()
        ]
        ways = {name: _loop(server, name, options) for name in ("quick", *[f"steps{steps}" for steps in _STEPS])}
        plain, *pipelines = (await in_turn(ways, options.rounds)).values()
    plain_us, *pipelines_us = [[1e6 * run.cpu_s / run.answered for run in runs] for runs in (plain, *pipelines)]
    further_us = [(four - one) / 3 for one, four in zip(pipelines_us[0], pipelines_us[-1], strict=True)]
    print(f"  each step after the first: {spread(further_us, '.1f')} us")
    figures: Figures = {"furthest": furthest}
    for steps, own_us in zip(_STEPS, pipelines_us, strict=True):
        figures[f"step_{steps}_us"] = [own / steps - one for own, one in zip(own_us, plain_us, strict=True)]
    return figures


def _pipeline(steps: int) -> str:
    """Each step reads what the one before it computed."""
    sources = ["x", *[f"s{number}.y" for number in range(1, steps)]]
    lines = [f"  s{number}: {{model: quick, inputs: {{x: {source}}}}}" for number, source in enumerate(sources, 1)]
    return "\n".join(["steps:", *lines, f"outputs: {{y: s{steps}.y}}"])


def _loop(server: Served, name: str, options: Options) -> Callable[[], Awaitable[Run]]:
    async def ask(_: int) -> None:
        await server.ask(name, {"x": _ROW})

    return partial(server.loop, ask, options.callers, options.seconds)
