"""A perceptron split over two devices beside the same one on one device: `python -m bench.sharded [--rounds 9]`.

The devices are CPUs of one thread each (intra_op_threads 1), both in this process; the split model is made by
`ferry shard`. Calls of 64 rows take turns in rounds, so the ratio holds although the machine's speed drifts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import tensorflow as tf

from app.core.inference import Array
from app.runtime import LoadedModel, RuntimeOptions, VariantOptions, devices_needed
from app.runtimes.tensorflow.sharding.shard_model import ShardOptions, find_devices, shard_model
from app.runtimes.tensorflow.tensorflow_runtime import TensorFlowRuntime
from bench.support.machine import load_average, machine_line

ROWS, DEVICES, GOAL = 64, 2, 1.5
WIDTH, HIDDEN, PAIRS = 1024, 4096, 3
SIGNATURE = "serving_default"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each model in a round")
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(DEVICES)
    devices = find_devices("CPU", DEVICES)
    print(machine_line())
    if load_average() > 1:
        print(f"Others are at work here (load {load_average():.1f}): the second device may find no core", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_perceptron(folder / "whole" / "1")
        for layer in shard_model(folder / "whole" / "1", folder / "split" / "1", ShardOptions(devices)):
            print(f"  {layer.shape} of {layer.bytes / 2**20:.0f} MB by {layer.by}")
        runtime = TensorFlowRuntime(RuntimeOptions(1, DEVICES, variants=VariantOptions("plain")))
        whole, split = (runtime.load(folder / each / "1") for each in ("whole", "split"))
    compare(whole, split, options.rounds, options.seconds)


def save_perceptron(path: Path) -> None:
    random = np.random.default_rng(1)
    module = tf.Module()
    module.layers = [
        tf.Variable(random.normal(0, shape[0] ** -0.5, shape).astype(np.float32))
        for _ in range(PAIRS)
        for shape in ((WIDTH, HIDDEN), (HIDDEN, WIDTH))
    ]

    @tf.function(input_signature=[tf.TensorSpec([None, WIDTH], tf.float32, name="x")])
    def call(x: tf.Tensor) -> dict[str, tf.Tensor]:
        for layer in module.layers:
            x = tf.nn.relu(tf.matmul(x, layer))
        return {"y": x}

    tf.saved_model.save(module, str(path), signatures=call)


def compare(whole: LoadedModel, split: LoadedModel, rounds: int, seconds: float) -> None:
    inputs = {"x": np.random.default_rng(2).random((ROWS, WIDTH), np.float32)}
    expected, actual = (model.run(SIGNATURE, inputs, ())["y"] for model in (whole, split))
    apart = float(np.abs(expected - actual).max() / np.abs(expected).max())
    ratios = []
    for _ in range(rounds):
        one_s, several_s = (call_s(model, inputs, seconds) for model in (whole, split))
        ratios.append(one_s / several_s)
        print(
            f"  {1000 * one_s:7.2f} ms on one, {1000 * several_s:7.2f} ms on {DEVICES}: {ratios[-1]:.2f}x", flush=True
        )
    print(f"on {' and '.join(devices_needed(split))}; answers {apart:.1e} apart, relative to the largest")
    verdict = "reached" if median(ratios) >= GOAL else "missed"
    print(f"{ROWS} rows: {median(ratios):.2f}x ({min(ratios):.2f}-{max(ratios):.2f}); goal {GOAL}x {verdict}")


def call_s(model: LoadedModel, inputs: dict[str, Array], seconds: float) -> float:
    """The median of calls for so many seconds."""
    times = list[float]()
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        begin_s = time.perf_counter()
        model.run(SIGNATURE, inputs, ())
        times.append(time.perf_counter() - begin_s)
    return median(times)


if __name__ == "__main__":
    main()
