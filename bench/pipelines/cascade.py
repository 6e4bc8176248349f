"""A small model for all rows and a big one for 30 % of them, beside what the costs of their calls predict.

Twice: of image nets, MobileNetV3 small and large, and of two stacks of dense layers, of which a row takes a tenth.

In each round, calls of both models are timed alone, by batch size. Rows/s by costs: what the calls that the cascade
made take alone, and nothing else. Beside it, as if all calls were full. Predicted: the rest is Python, some 40 us a
row, and more than in `steps`, since each call displaces Python's data from the caches: 5 % of the image nets' 800 us,
and a third of the dense layers' 100 us.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from app.core.batch_sizes import BatchSizes
from app.core.inference import Array
from bench.pipelines.figures import Figures
from bench.pipelines.options import Options, spread
from bench.pipelines.served import Run, Served, apart, put_pipeline, save, served

SHARE, _ROWS = 0.3, 1024
_MODELS = ("small", "big")
_SIZES = BatchSizes.powers_of_two(64)

_PIPELINE = f"""
steps:
  small: {{model: small, inputs: {{x: x}}}}
  big: {{model: big, inputs: {{x: x}}, when: small.score < {SHARE}}}
outputs: {{y: [big.y, small.y], score: small.score}}
"""

Costs = dict[tuple[str, int], float]


class Dense(tf.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        random, width, count = np.random.default_rng(1), *DENSE.shape, {"small": 2, "big": 12}[name]
        self._layers = [tf.constant(random.normal(0, width**-0.5, (width, width)), tf.float32) for _ in range(count)]

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        for layer in self._layers:
            x = tf.tanh(tf.matmul(x, layer))
        return x


class ImageNet(tf.Module):
    """With random weights."""

    def __init__(self, name: str) -> None:
        super().__init__()
        tf.keras.utils.set_random_seed(1)
        nets = {"small": tf.keras.applications.MobileNetV3Small, "big": tf.keras.applications.MobileNetV3Large}
        self._net = nets[name](input_shape=IMAGES.shape, weights=None, classes=10)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return self._net(255 * x, training=False)


class Kind(NamedTuple):
    """What is computed.

    shape: of a row.
    net: made of a model's name.
    """

    name: str
    shape: tuple[int, ...]
    net: type[Dense | ImageNet]


DENSE, IMAGES = Kind("dense", (1024,), Dense), Kind("images", (96, 96, 3), ImageNet)


async def measure(folder: Path, options: Options) -> Figures:
    figures, furthest = Figures(), list[float]()
    for kind in (IMAGES, DENSE):
        models, rows = folder / kind.name, _rows(kind)
        save_models(models, kind)
        async with served(models, options.cores) as server:
            furthest.append(await _furthest(server, rows[:64]))
            figures[f"cascade_{kind.name}"] = await _to_costs(server, kind, rows, options)
    return figures | {"furthest": furthest}


async def _to_costs(server: Served, kind: Kind, rows: list[Array], options: Options) -> list[float]:
    runs, by_costs, full = list[Run](), list[float](), list[float]()
    for number in range(options.rounds + 1):
        before = _costs(server, kind, options.seconds / 4)
        run = await _run(server, rows, options)
        costs = _mean(before, _costs(server, kind, options.seconds / 4))
        if number:
            runs.append(run)
            by_costs.append(_seconds_alone(run, costs) / run.seconds / options.cores)
            full.append(_seconds_if_full(run, costs) / run.seconds / options.cores)
    rates, shares = [run.rate for run in runs], [_calls_of(run, "big") / run.answered for run in runs]
    print(f"  {kind.name}: {spread(rates)} rows/s, of which {spread(shares, '.2f')} at the big model")
    for name in _MODELS:
        called = spread([run.mean_rows(name) for run in runs])
        print(f"    {name}: {called} rows in a call, which takes {1e6 * costs[name, 64]:.0f} us alone if it is full")
    print(f"    rows/s / as full calls would give: {spread(full, '.2f')}", flush=True)
    return by_costs


async def _run(server: Served, rows: list[Array], options: Options) -> Run:
    async def ask(number: int) -> None:
        await server.ask("cascade", {"x": rows[number % _ROWS]})

    return await server.loop(ask, 2 * options.callers, options.seconds)  # the big model has full calls, too


def _costs(server: Served, kind: Kind, seconds: float) -> Costs:
    """Seconds of a call, by model and batch size, the sizes in turn."""
    calls: dict[tuple[str, int], Callable[[], object]] = {}
    for name in _MODELS:
        call = server.direct(name)
        for size in _SIZES.allowed:
            inputs = {"x": np.random.default_rng(size).random((size, *kind.shape), np.float32)}
            calls[name, size] = lambda call=call, inputs=inputs: call(inputs)
    times: dict[tuple[str, int], list[float]] = {key: [] for key in calls}
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s or len(times["big", 64]) < 5:
        for key, one in calls.items():
            begin_s = time.perf_counter()
            one()
            times[key].append(time.perf_counter() - begin_s)
    return {key: median(own) for key, own in times.items()}


def _mean(one: Costs, other: Costs) -> Costs:
    return {key: (one[key] + other[key]) / 2 for key in one}


def _calls_of(run: Run, model: str) -> int:
    """Rows that the model computed."""
    return sum(call.rows for call in run.calls if call.model == model)


def _seconds_alone(run: Run, costs: Costs) -> float:
    made = Counter((call.model, call.rows + call.padded_rows) for call in run.calls)
    return sum(count * costs[key] for key, count in made.items())


def _seconds_if_full(run: Run, costs: Costs) -> float:
    return sum(_calls_of(run, name) / 64 * costs[name, 64] for name in _MODELS)


async def _furthest(server: Served, rows: Iterable[Array]) -> float:
    furthest = 0.0
    for row in rows:
        answer = await server.ask("cascade", {"x": row})
        model = "big" if row.flat[0] < SHARE else "small"
        furthest = max(furthest, apart(answer["y"], (await server.ask(model, {"x": row}))["y"]))
    return furthest


def _rows(kind: Kind) -> list[Array]:
    """The first number of a row is its score; exactly 30 % are below."""
    rows = np.random.default_rng(5).random((_ROWS, 1, *kind.shape), np.float32)
    rows.reshape(_ROWS, -1)[:, 0] = np.random.default_rng(6).permutation(_ROWS) / _ROWS
    return list(rows)


def save_models(folder: Path, kind: Kind) -> None:
    x = tf.TensorSpec([None, *kind.shape], tf.float32)
    for name in _MODELS:
        net = kind.net(name)
        save(folder, name, partial(_scored, net), net, x=x)
    put_pipeline(folder, "cascade", _PIPELINE)


def _scored(net: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"y": net(x), "score": tf.reshape(x, [tf.shape(x)[0], -1])[:, 0]}
