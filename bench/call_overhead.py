"""Microseconds that one call and one event cost a request: `python -m bench.call_overhead`.

calls: a small model called publicly (a tensor made of each input, a dictionary in and out), prepared as Ferry calls it,
and what of the latter is TensorFlow's execution alone; in turn, since a machine's speed drifts.
batches: requests of one row assembled and split again, around a function that does nothing.
events: made, and told to every listener of a server.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from app.batching.batch import execute as execute_batch
from app.batching.function import BatchFunction
from app.batching.request import PendingRequest
from app.core.batch_sizes import BatchSizes
from app.core.events import BatchExecuted, RequestFinished, tell_all
from app.core.time_budget import TimeBudget
from app.core.values.sample_inputs import random_inputs
from app.instrumentation import logs
from app.instrumentation.counts import Counts
from app.instrumentation.metrics import Metrics
from app.instrumentation.model_facts import ModelFacts
from app.instrumentation.statistics import ModelStatistics
from app.runtime import VariantOptions
from app.runtimes.tensorflow.private_api import direct_executor
from app.runtimes.tensorflow.saved_model.saved_model import SavedModel
from bench.models import ensure_models, saved_model

SIZES = (1, 8, 64)
SIGNATURE = "serving_default"

Step = Callable[[], Any]


def microseconds(steps: dict[str, Step], rounds: int, times: int = 20) -> dict[str, float]:
    """Medians of `rounds` rounds, the steps in turn."""
    found: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            step()
            start_s = time.perf_counter()
            for _ in range(times):
                step()
            found[name].append((time.perf_counter() - start_s) / times * 1e6)
    return {name: median(values) for name, values in found.items()}


def calls(model: str, variant: str, rounds: int) -> None:
    import tensorflow as tf  # noqa: PLC0415 - after app.runtimes, which says how much it logs

    loaded = SavedModel(saved_model(model), VariantOptions(variant))
    loaded.tune(SIZES, lambda *_: None, TimeBudget(20.0))
    function = loaded._functions[SIGNATURE]
    for rows in SIZES:
        inputs = random_inputs(function.signature, rows)
        chosen = function._variants.get(rows)
        graph = chosen.graph if chosen else function.plain
        execute, tensors = direct_executor(graph), [tf.constant(inputs[name]) for name in sorted(inputs)]
        steps = {
            "public": lambda graph=graph, inputs=inputs: [
                tensor.numpy()
                for tensor in graph({name: tf.constant(array) for name, array in inputs.items()}).values()
            ],
            "prepared": lambda inputs=inputs: loaded.run(SIGNATURE, inputs, ()),
            "execution": lambda execute=execute, tensors=tensors: execute(tensors),
        }
        show(f"{model}, {variant}, {rows} rows", microseconds(steps, rounds))


def batches(rounds: int) -> None:
    for count in SIZES:
        outputs = {"y": np.zeros((count, 4), np.float32)}
        function = BatchFunction(lambda _, outputs=outputs: outputs, BatchSizes.powers_of_two(max(SIZES)))
        requests: list[Any] = [
            PendingRequest({"x": np.zeros((1, 16), np.float32)}, 1, reply=None, arrival_s=0.0) for _ in range(count)
        ]
        step = {"around the call": lambda f=function, r=requests: execute_batch(f, r, time.monotonic)}
        show(f"batch of {count} requests", microseconds(step, rounds))


def events(rounds: int) -> None:
    counts = Counts()
    facts = ModelFacts()
    listeners = (counts, ModelStatistics(counts), Metrics(counts, facts), facts)
    tell = tell_all(*(listener.subscriptions for listener in listeners), logs.SUBSCRIPTIONS)
    steps: dict[str, Step] = {
        "request": lambda: tell(RequestFinished("tensorflow_rest", "200", "m", 1, SIGNATURE, 0.00123))
    }
    for count in SIZES:
        waits = [0.002 - 1e-5 * place for place in range(count)]
        steps[f"batch of {count}"] = lambda waits=waits: tell(
            BatchExecuted("m", 1, SIGNATURE, len(waits), 0, "idle", 0.001, waits)
        )
    show("event", microseconds(steps, rounds, times=1000))


def show(what: str, found: dict[str, float]) -> None:
    print(f"{what:28}", "  ".join(f"{name} {value:7.2f}" for name, value in found.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mlp", help="one of bench.models")
    parser.add_argument("--variants", nargs="*", default=["plain", "frozen", "xla"])
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    ensure_models()
    for variant in arguments.variants:
        calls(arguments.model, variant, arguments.rounds)
    batches(arguments.rounds)
    events(min(arguments.rounds, 20))


if __name__ == "__main__":
    main()
