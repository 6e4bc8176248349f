"""What replicas do on three devices, as one JSON document: python -m tests.runtimes.several_devices FOLDER

In a process of its own, since TensorFlow's devices are fixed by its first operation. The devices are CPUs that share
the real one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, cast

import numpy as np
import tensorflow as tf

from app.config.settings import Settings
from app.core.errors import ServingError
from app.core.inference import InferenceRequest, InferenceResponse
from app.core.time_budget import TimeBudget
from app.loading.warm_up import tune, warm_up
from app.runtime import CompilableModel, LoadedModel, RuntimeOptions, ShapeTrial, VariantOptions, replicas_of
from app.runtimes.tensorflow import private_api
from app.runtimes.tensorflow.saved_model.saved_model import SavedModel
from app.runtimes.tensorflow.tensorflow_runtime import TensorFlowRuntime
from app.server.engine import Engine
from app.server.server import Server
from tests.instrumentation.pages import document_of
from tests.support import savedmodels

DEVICES = 3
DEFAULT = "serving_default"
IMAGES = np.random.default_rng(1).random([4, 8, 8], np.float32)


def main(folder: Path) -> dict[str, Any]:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * DEVICES
    )
    log = Kept()
    logging.getLogger("app").addHandler(log)
    for name in ("image_net", "counter", "poison", "every_dtype", "attention"):
        getattr(savedmodels, f"make_{name}")(folder / name / "1")
    savedmodels.make_on_a_gpu(folder / "on_a_gpu" / "1")
    loaded = {name: runtime(DEVICES).load(folder / name / "1") for name in ("image_net", "counter", "on_a_gpu")}
    tuned = {variant: tuned_to(variant, folder) for variant in ("plain", "frozen", "xla")}
    return {
        "devices": {str(count): list(runtime(count).devices) for count in (0, 1, 2, 3)},
        "too many": rejection(lambda: runtime(DEVICES + 1)),
        "replicas": {name: len(replicas_of(model)) for name, model in loaded.items()},
        "variables": [cast(Any, each)._loaded.kernel.device[-5:] for each in replicas_of(loaded["image_net"])],
        "runs on": {variant: runs_on(model) for variant, model in tuned.items()},
        "runs on publicly": runs_on(publicly(folder)),
        "apart": {variant: apart(model) for variant, model in tuned.items()},
        "compiled": compiled(folder),
        "rejections": rejections(folder),
        "served": asyncio.run(served(folder)),
        "log": log.texts,
    }


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def runtime(replicas: int, variant: str = "plain") -> TensorFlowRuntime:
    return TensorFlowRuntime(RuntimeOptions(replicas=replicas, variants=VariantOptions(variant)))


def rejection(call: Callable[[], object]) -> str:
    try:
        call()
    except ServingError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def tuned_to(variant: str, folder: Path) -> LoadedModel:
    model = runtime(DEVICES, variant).load(folder / "image_net" / "1")
    warm_up(model, (1, 4), lambda *_: None)
    choices = tune(model, (1, 4), lambda *_: None, TimeBudget(inf))
    assert {choice.variant for choice in choices} == {variant}
    return model


def runs_on(model: LoadedModel) -> list[str]:
    """Where the results of each replica's call lie."""
    return [_result_of(replica)[0].backing_device[-5:] for replica in replicas_of(model)]


def _result_of(replica: LoadedModel) -> Any:
    assert isinstance(replica, SavedModel)
    function = replica._functions[DEFAULT]
    function({"image": IMAGES}, ())
    call = function._calls[(), (IMAGES.shape,)]
    return call._execute([tf.constant(IMAGES)])


def publicly(folder: Path) -> LoadedModel:
    """A model that is called by TensorFlow's public API."""
    works, private_api.works = private_api.works, lambda feature: False  # type: ignore[assignment]  # for a while
    try:
        model = runtime(DEVICES).load(folder / "image_net" / "1")
        apart(model)
        return model
    finally:
        private_api.works = works


def apart(model: LoadedModel) -> float:
    """How far the replicas' answers lie apart at the most."""
    found = [replica.run(DEFAULT, {"image": IMAGES}, ())["probabilities"] for replica in replicas_of(model)]
    return max(float(np.abs(each - found[0]).max()) for each in found)


def compiled(folder: Path) -> dict[str, Any]:
    """A model with a free length is compiled for two; what each replica is compiled for, and where it then runs."""
    model = runtime(DEVICES, "xla").load(folder / "attention" / "1")
    assert isinstance(model, CompilableModel)
    calls = [{"tokens": np.ones((rows, length), np.int32)} for rows, length in ((1, 8), (4, 50), (4, 8))]
    functions = [replica._functions[DEFAULT] for replica in replicas_of(model)]  # type: ignore[attr-defined]  # what it keeps for itself
    return {
        "gains": list(model.compile_shapes(DEFAULT, (ShapeTrial(inputs, inputs) for inputs in calls), TimeBudget(inf))),
        "shapes": [sorted(shape[0] for shape in function._compiled) for function in functions],
        "places": [
            function.prepare(variant.graph, calls[0])._execute([tf.constant(calls[0]["tokens"])])[0].backing_device[-5:]
            for function in functions
            if (variant := function._compiled.get(((1, 8),)))
        ],
    }


def rejections(folder: Path) -> list[str]:
    model = runtime(DEVICES).load(folder / "poison" / "1")
    return [
        rejection(partial(replica.run, DEFAULT, {"x": np.array([-1], np.float32)}, ()))
        for replica in replicas_of(model)
    ]


async def served(folder: Path) -> dict[str, Any]:
    """Many requests to a server with three replicas, each batch of which takes its time."""
    server = Server(
        Settings(
            models=folder, replicas=DEVICES, preserve_order=True, max_batch_size=4, grpc_port=0, max_inline_ms=0.0,
            execution_variant="plain",
        )
    )  # fmt: skip
    await server.start()
    assert server._starting is not None
    await server._starting
    model = server.repository.resolve("image_net")
    used = watched(server.engine)
    requests = [InferenceRequest({"image": IMAGES[:1] + number}) for number in range(64)]
    answered: list[int] = []

    async def ask(number: int) -> InferenceResponse:
        reply = await model.infer(requests[number])
        answered.append(number)
        return reply

    replies = await asyncio.gather(*[ask(number) for number in range(64)])
    page = (await server.metrics())[0].decode()
    summary = document_of(await server.summary())
    await server.stop()
    alone = runtime(1).load(folder / "image_net" / "1")
    return {
        "used": len(used),
        "in order": answered == sorted(answered),
        "right": all(
            np.allclose(reply.outputs["probabilities"], alone.run(DEFAULT, request.inputs, ())["probabilities"], 1e-4)
            for request, reply in zip(requests, replies, strict=True)
        ),
        "replicas": summary["replicas"],
        "devices": summary["devices"],
        "metrics": [line for line in page.splitlines() if line.startswith("ferry_replicas{")],
        "stopped": server.stopped,
    }


def watched(engine: Engine) -> set[int]:
    """The replicas that get batches from now on."""
    used: set[int] = set()
    assert engine._batcher is not None
    for device in engine._batcher.state.slots._devices:

        def noted(work: Any, done: Any, start: Any = device.start, replica: int = device.replica) -> None:
            used.add(replica)
            start(work, done)

        device.start = noted  # type: ignore[method-assign]  # it starts it then
    return used


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))))
