"""Resizing and a dense net as two steps, beside the same in one SavedModel.

The one SavedModel shares calls only among images of equal size. The pipeline resizes these together, and then all of
them share calls of the net. Predicted: the net's 8 million weights are read once for a call, so an image costs five
times as much where it is alone as in a full call; of one size, the second step costs a few percent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import numpy as np
import tensorflow as tf

from app.core.inference import Array
from bench.pipelines.figures import Figures
from bench.pipelines.options import Options, in_turn, ratios, spread
from bench.pipelines.served import Run, Served, apart, put_pipeline, save, served

SIDE, HIDDEN, CLASSES = 48, 1024, 10
_SIDES, _IMAGES = range(24, 88, 8), 512

_PIPELINE = """
steps:
  resized: {model: resize, inputs: {image: image}}
  net: {model: net, inputs: {pixels: resized.pixels}}
outputs: {scores: net.scores}
"""

_WAYS = {"pipeline": "steps", "one SavedModel": "fused"}


async def measure(folder: Path, options: Options) -> Figures:
    models, figures, furthest = folder / "models", Figures(), list[float]()
    _save_models(models)
    async with served(models, options.cores) as server:
        for kind in ("mixed", "equal"):
            images = _images(kind)
            furthest.append(await _furthest(server, images[:32]))
            ways = {f"{kind}, {way}": _loop(server, model, images, options) for way, model in _WAYS.items()}
            steps, fused = (await in_turn(ways, options.rounds)).values()
            rows = [run.mean_rows("net") for run in steps], [run.mean_rows("fused") for run in fused]
            print(f"  {kind}: rows in a call of the net {spread(rows[0])}, of the one SavedModel {spread(rows[1])}")
            figures[f"images_{kind}"] = ratios([run.rate for run in steps], [run.rate for run in fused])
    return figures | {"furthest": furthest}


def _loop(server: Served, model: str, images: list[Array], options: Options) -> Callable[[], Awaitable[Run]]:
    async def ask(number: int) -> None:
        await server.ask(model, {"image": images[number % _IMAGES]})

    return partial(server.loop, ask, options.callers, options.seconds)


async def _furthest(server: Served, images: list[Array]) -> float:
    found = [[(await server.ask(model, {"image": image}))["scores"] for image in images] for model in _WAYS.values()]
    return max(apart(mine, theirs) for mine, theirs in zip(*found, strict=True))


def _images(kind: str) -> list[Array]:
    """One image each, of 64 sizes or of the largest of these."""
    random = np.random.default_rng(3)
    sizes = random.choice(_SIDES, (_IMAGES, 2)) if kind == "mixed" else np.full((_IMAGES, 2), _SIDES[-1])
    return [random.random((1, height, width, 3), np.float32) for height, width in sizes]


def _save_models(folder: Path) -> None:
    random = np.random.default_rng(1)
    shapes = (SIDE * SIDE * 3, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, CLASSES)
    layers = [random.normal(0, shape[0] ** -0.5, shape).astype(np.float32) for shape in shapes]

    def resize(image: tf.Tensor) -> tf.Tensor:
        return tf.image.resize(image, [SIDE, SIDE])

    def net(pixels: tf.Tensor) -> tf.Tensor:
        x = tf.reshape(pixels, [-1, SIDE * SIDE * 3])
        for layer in layers[:-1]:
            x = tf.nn.relu(tf.matmul(x, layer))
        return tf.matmul(x, layers[-1])

    image = tf.TensorSpec([None, None, None, 3], tf.float32)
    save(folder, "resize", lambda image: {"pixels": resize(image)}, image=image)
    save(folder, "net", lambda pixels: {"scores": net(pixels)}, pixels=tf.TensorSpec([None, SIDE, SIDE, 3], tf.float32))
    save(folder, "fused", lambda image: {"scores": net(resize(image))}, image=image)
    put_pipeline(folder, "steps", _PIPELINE)
