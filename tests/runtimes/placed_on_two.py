"""A model that lies on two devices, alone and served beside another one, as one JSON document.

    python -m tests.runtimes.placed_on_two FOLDER

In a process of its own, since TensorFlow's devices are fixed by its first operation: two CPUs that share the real one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from app.config.settings import Settings
from app.core.inference import Array, InferenceRequest
from app.core.time_budget import TimeBudget
from app.runtime import RuntimeOptions, ShapeTrial, VariantOptions, devices_needed, replicas_of
from app.runtimes.tensorflow.saved_model.saved_model import SavedModel
from app.runtimes.tensorflow.tensorflow_runtime import TensorFlowRuntime
from app.server.engine import Engine
from app.server.server import Server
from tests.instrumentation.pages import document_of
from tests.runtimes.several_devices import Kept
from tests.support import savedmodels

DEFAULT = "serving_default"
REQUESTS = 60
ROWS = np.random.default_rng(1).normal(0, 1, [REQUESTS, 6]).astype(np.float32)
IMAGES = np.random.default_rng(2).random([REQUESTS, 8, 8], np.float32)


def main(folder: Path) -> dict[str, Any]:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    log = Kept()
    logging.getLogger("app").addHandler(log)
    logging.getLogger("app").setLevel(logging.INFO)
    savedmodels.make_placed(folder / "models" / "placed" / "1")
    savedmodels.make_image_net(folder / "models" / "image_net" / "1")
    savedmodels.make_placed(folder / "absent" / "1", ("GPU:0", "CPU:0", "GPU:1"))
    return {
        "loaded": {variant: loaded(folder / "models" / "placed" / "1", variant) for variant in ("auto", "xla")},
        "absent": absent(folder / "absent" / "1"),
        "served": asyncio.run(served(folder / "models")),
        "log": log.texts,
    }


def runtime(variant: str = "auto") -> TensorFlowRuntime:
    return TensorFlowRuntime(RuntimeOptions(replicas=2, variants=VariantOptions(variant)))


def loaded(path: Path, variant: str) -> dict[str, Any]:
    model = runtime(variant).load(path)
    assert isinstance(model, SavedModel)
    choices = model.tune((1, 4), lambda *_: None, TimeBudget(inf))
    inputs = {"x": ROWS[:4]}
    compiled = model.compile_shapes(DEFAULT, [ShapeTrial(inputs, inputs)], TimeBudget(inf))
    with watched_operations() as products:
        answer = model.run(DEFAULT, inputs, ())
    return {
        "devices": list(devices_needed(model)),
        "replicas": len(replicas_of(model)),
        "variables": [[each.device[-5:] for each in group] for group in (model._loaded.w, model._loaded.v)],
        "computed on": dict(products),
        "variants": sorted({choice.variant for choice in choices}),
        "compiled": len(compiled),
        "apart": apart(original(path, "x", ROWS[:4])["y"], answer["y"]),
    }


@contextmanager
def watched_operations() -> Iterator[Counter[str]]:
    """How many matrix products each device computes in the block."""
    found, own_context = Counter[str](), context.context()
    own_context.enable_run_metadata()
    yield found
    for graph in own_context.export_run_metadata().partition_graphs:
        found.update(node.device[-5:] for node in graph.node if "MatMul" in node.op)
    own_context.disable_run_metadata()


def original(path: Path, name: str, rows: Array) -> dict[str, Array]:
    """What TensorFlow itself answers."""
    signature = tf.saved_model.load(str(path)).signatures[DEFAULT]
    return {name: value.numpy() for name, value in signature(**{name: tf.constant(rows)}).items()}


def apart(expected: Array, actual: Array) -> float:
    return float(np.abs(expected - actual).max() / np.abs(expected).max())


def absent(path: Path) -> dict[str, Any]:
    """The same model, whose author had GPUs."""
    model = runtime().load(path)
    answer = model.run(DEFAULT, {"x": ROWS}, ())["y"]
    return {"devices": list(devices_needed(model)), "apart": apart(original(path, "x", ROWS)["y"], answer)}


class Work(NamedTuple):
    """What a device was given: whether it needs all devices, and from when to when."""

    together: bool
    begin_s: float
    end_s: float


async def served(folder: Path) -> dict[str, Any]:
    """Requests to the placed model and to another one, at the same time."""
    server = Server(Settings(models=folder, replicas=2, max_batch_size=4, grpc_port=0, max_inline_ms=0.0))
    await server.start()
    assert server._starting is not None
    await server._starting
    work = watched(server.engine)

    async def ask(name: str, key: str, rows: Array, wanted: str) -> Array:
        model = server.repository.resolve(name)
        asked = [model.infer(InferenceRequest({key: rows[n : n + 1]})) for n in range(REQUESTS)]
        return np.concatenate([reply.outputs[wanted] for reply in await asyncio.gather(*asked)])

    answers = await asyncio.gather(
        ask("placed", "x", ROWS, "y"), ask("image_net", "image", IMAGES, "probabilities"), ask("placed", "x", ROWS, "y")
    )
    page = (await server.metrics())[0].decode()
    summary = document_of(await server.summary())
    await server.stop()
    expected = original(folder / "placed" / "1", "x", ROWS)["y"]
    images = original(folder / "image_net" / "1", "image", IMAGES)["probabilities"]
    pairs = zip((expected, images, expected), answers, strict=True)
    return {
        "apart": max(apart(want, got) for want, got in pairs),
        "calls together": sum(each.together for each in work),
        "other calls": sum(not each.together for each in work),
        "beside calls together": [
            [one, other] for one in work if one.together for other in work if other is not one and overlap(one, other)
        ],
        "replicas": summary["replicas"],
        "metrics": [line for line in page.splitlines() if line.startswith("ferry_replicas{")],
        "stopped": server.stopped,
    }


def overlap(one: Work, other: Work) -> bool:
    return one.begin_s < other.end_s and other.begin_s < one.end_s


def watched(engine: Engine) -> list[Work]:
    """What devices are given from now on."""
    work: list[Work] = []
    assert engine._batcher is not None
    for device in engine._batcher.state.slots._devices:

        def noted(execute: Any, done: Callable[[Any], None], start: Any = device.start) -> None:
            begin_s = time.monotonic()

            def ended(result: Any) -> None:
                function = execute.args[0].function if len(execute.args) == 1 else execute.args[0]
                work.append(Work(bool(function.devices), begin_s, time.monotonic()))
                done(result)

            start(execute, ended)

        device.start = noted  # type: ignore[method-assign]  # it starts it then
    return work


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))))
