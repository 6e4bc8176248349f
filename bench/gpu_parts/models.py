"""The models of bench.gpu, and their answers by the CPU: python -m bench.gpu_parts.models FOLDER WIDTH NAME ...

A process of its own makes them and sees no GPU, so the answers that a GPU's are compared with do not come from it, and
TensorFlow's devices are still unset in the processes that measure.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.models import MODELS as OTHERS
from bench.support.cache import ROOT

Array = np.ndarray[Any, Any]

#: A dense net of its own: the tiny MLP of the other benchmarks would measure nothing but launches of kernels.
MODELS = ("dense", "mobilenet", "transformer")

#: Of the hidden layers of the dense net: 42 million weights at the first, as many as fit a dry run at the second.
WIDTH, DRY_WIDTH = 4096, 256

#: Rows of samples, and of the largest call.
ROWS = 64

_CLASSES = 1000


def ensure_models(folder: Path, width: int, names: Sequence[str]) -> None:
    """Makes what is not there. Raises CalledProcessError."""
    if absent := [name for name in names if not _stamp(folder, name, width).is_file()]:
        command = [sys.executable, "-m", "bench.gpu_parts.models", str(folder), str(width), *absent]
        hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        subprocess.run(command, cwd=ROOT, check=True, env=hidden)


def model_folder(folder: Path, name: str) -> Path:
    """Has the repository with this model alone, and its samples."""
    return folder / name


def version_folder(folder: Path, name: str) -> Path:
    return model_folder(folder, name) / "repository" / name / "1"


def read_samples(folder: Path, name: str) -> tuple[Array, Array]:
    """ROWS rows of input, and the answers of the CPU in float32."""
    with np.load(model_folder(folder, name) / "samples.npz") as file:
        return file["input"], file["output"]


def dense(tf: Any, path: Path, width: int) -> None:
    """x [batch, width / 4] -> logits [batch, 1000] through three hidden layers of `width`."""
    module, random = tf.Module(), tf.random.Generator.from_seed(7)
    sizes = (width // 4, width, width, width, _CLASSES)
    module.kernels = [tf.Variable(random.normal([m, n]) * (2 / m) ** 0.5) for m, n in itertools.pairwise(sizes)]

    def call(x: Any) -> dict[str, Any]:
        for kernel in module.kernels[:-1]:
            x = tf.nn.relu(x @ kernel)
        return {"logits": x @ module.kernels[-1]}

    module.call = tf.function(call, input_signature=[tf.TensorSpec([None, sizes[0]], tf.float32, name="x")])
    tf.saved_model.save(module, str(path), signatures=module.call)


def _stamp(folder: Path, name: str, width: int) -> Path:
    made_by = Path(__file__).read_bytes() + (ROOT / "bench" / "models.py").read_bytes()
    return model_folder(folder, name) / hashlib.sha256(made_by + str(width).encode()).hexdigest()


def _make(tf: Any, folder: Path, name: str, width: int) -> None:
    shutil.rmtree(model_folder(folder, name), ignore_errors=True)
    path, random = version_folder(folder, name), np.random.default_rng(8)
    if name == "dense":
        dense(tf, path, width)
        inputs = random.normal(0, 1, (ROWS, width // 4)).astype(np.float32)
    else:
        make, one_input, _ = OTHERS[name]
        make(tf, path)
        inputs = np.stack([one_input(random) for _ in range(ROWS)])
    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    (argument,) = signature.structured_input_signature[1]
    (output,) = signature(**{argument: tf.constant(inputs)}).values()
    np.savez(model_folder(folder, name) / "samples.npz", input=inputs, output=output.numpy())
    _stamp(folder, name, width).touch()


def main() -> None:
    import tensorflow as tf  # noqa: PLC0415 - those who only read the samples need none

    folder, width, *names = sys.argv[1:]
    for name in names:
        print(f"Making model {name}", flush=True)
        _make(tf, Path(folder), name, int(width))


if __name__ == "__main__":
    main()
