"""Mixed precision: float32, TF32 and bfloat16, in speed and in how far the answers lie from float32 on the CPU.

The bound is stated before: each product rounds both operands by u (2^-9 in bfloat16, 2^-11 in TF32, relative), so n
products one after the other by 2 u n; float32 on the same device may differ by 1e-4. (As independent errors, 4 u
sqrt(2 n), MobileNetV2 would be within 2e-2 in TF32; on a H200 it was 4e-2 off.) Predicted: all three models keep within
it. On a GPU TF32, which TensorFlow uses without being asked, is 1.1 to 2 times as fast as
float32 for the dense net at 64 rows (its weights have to be read either way) and makes no difference for the small
ones; bfloat16 gives the dense net up to twice that again, as half of the bytes are read. On a CPU without matrix units
it is slower than float32.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import tensorflow as tf

from app.runtimes.tensorflow.error_mapping import first_meaningful_line
from bench.gpu_parts.bfloat16 import CONVOLUTIONS, DENSE, save_bfloat16
from bench.gpu_parts.device import NO_GPU, PartRun, bare_call, furthest
from bench.gpu_parts.models import Array, version_folder
from bench.gpu_parts.report import counted
from bench.gpu_parts.turns import Turns, repeated

ROWS = (8, 64)

#: Of one rounding, relative.
UNITS = {"TF32": 2**-11, "bfloat16": 2**-9}
_FLOAT32 = 1e-4

Call = Callable[[Array], Array]


def bound(unit: float, products: int) -> float:
    """How far answers may lie apart after so many products, relative to the largest."""
    return _FLOAT32 + 2 * unit * products


async def measure(run: PartRun) -> None:
    if not run.device.is_gpu:
        run.report.not_measured("TF32", f"{NO_GPU}, and the CPU has no TF32")
        run.report.not_measured("bfloat16 on a GPU", f"{NO_GPU}; what follows is the CPU's")
    with tempfile.TemporaryDirectory() as folder:
        for model, turns in run.each(run.models):
            await _measure_model(run, model, Path(folder), turns)


async def _measure_model(run: PartRun, model: str, folder: Path, turns: Turns) -> None:
    report, source = run.report, version_folder(run.folder, model)
    inputs, expected = run.samples(model)

    # 1. The copies, and how many products each rounds. Those that do not run here are told.
    plain = bare_call(source)
    calls: dict[str, Call] = {"float32": _in(plain, tf32=False)}
    products = 0
    for name, operations in (("bfloat16", DENSE), ("bfloat16, convolutions too", DENSE + CONVOLUTIONS)):
        target = folder / f"{model}-{len(operations)}"
        try:
            before, products = products, save_bfloat16(source, target, operations)
            if products == before:  # it has none
                continue
            if operations != DENSE and not run.device.is_gpu:
                report.not_measured(
                    f"{model}: {name}", f"{NO_GPU}, and the kernel of the CPU took longer than the whole part"
                )
                continue
            call = _in(bare_call(target), tf32=False)
            apart = furthest(call(inputs), expected)
        except Exception as error:  # whatever TensorFlow raises: not every device has every kernel
            report.not_measured(f"{model}: {name}", f"it failed: {first_meaningful_line(error)}")
            continue
        calls[name] = call
        report.bound(f"{model}: {name}, {counted(products, 'product')}", apart, bound(UNITS["bfloat16"], products))

    # 2. How far answers lie from the CPU's.
    report.bound(f"{model}: float32", furthest(calls["float32"](inputs), expected), _FLOAT32)
    if run.device.is_gpu:
        calls["TF32"] = _in(plain, tf32=True)
        limit = bound(UNITS["TF32"], products)
        report.bound(f"{model}: TF32, {counted(products, 'product')}", furthest(calls["TF32"](inputs), expected), limit)

    # 3. Their speed, in turn.
    for number, rows in enumerate(ROWS):
        own = turns.piece(number, len(ROWS))
        rates = await own.take(
            {name: repeated(partial(call, inputs[:rows]), own.slice_s) for name, call in calls.items()}
        )
        for name, values in rates.items():
            if name != "float32":
                report.ratio(f"{model}: {name} / float32, {rows} rows", values, rates["float32"])


def _in(call: Call, *, tf32: bool) -> Call:
    """The call with products of float32 in TF32, or not; bfloat16 does not obey it. TensorFlow keeps it per process."""

    def run(batch: Array) -> Array:
        tf.config.experimental.enable_tensor_float_32_execution(tf32)
        return call(batch)

    return run
