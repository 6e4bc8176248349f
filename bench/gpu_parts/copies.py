"""Inputs on their way to the GPU: pageable and page-locked memory, and copies beside computation.

`constant` makes a tensor of numpy's memory, as a bare loop does; `new staging` is what Ferry does with inputs above 256
KiB (aligned memory for each call); `kept staging` fills the same memory again, as Ferry does below; `locked staging`
fills memory that is page-locked.

Predicted: locked memory is copied 1.5 to 3 times as fast as pageable (which CUDA copies twice), from 1 MB on. Two calls
in flight hide little of a copy: TensorFlow lets a copy to the GPU wait for what its one compute stream was given before
(GPUUtil::CopyCPUTensorToGPU), so only the filling of memory and the way back of the answer overlap: below half.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from app.runtimes.tensorflow.execution.staging import Staging
from bench.gpu_parts.device import NO_GPU, CannotLock, Device, PartRun, page_lock
from bench.gpu_parts.models import Array
from bench.gpu_parts.report import Report
from bench.gpu_parts.turns import Turns, Way, repeated
from bench.peers.best_size import timed

#: Bytes of an input; a dry run leaves the largest out, which overlap is measured with.
SIZES = (1 << 16, 1 << 20, 1 << 24)

_WIDTH = 1024

#: A copy and a computation that take about as long hide most of each other, if anything does. Products, at least, most.
_PRODUCTS = (1, 256)


async def measure(run: PartRun) -> None:
    report, device = run.report, run.device
    sizes = SIZES if device.is_gpu else SIZES[:-1]
    if not device.is_gpu:
        report.not_measured("copies from the host to the GPU's memory", f"{NO_GPU}; what follows is the host's share")
        report.not_measured("page-locked staging", f"{NO_GPU}: only CUDA locks pages for it")
        report.not_measured("what of a copy two calls in flight hide", f"{NO_GPU}: on the CPU nothing is copied to it")
    for number, size in enumerate(sizes):
        await _measure_copies(run, size, run.turns.piece(number, len(sizes) + 2))
    await _measure_overlap(run, sizes[-1])


async def _measure_copies(run: PartRun, size: int, turns: Turns) -> None:
    array, report = _array(size), run.report
    stagings, free = _stagings(run, array)
    calls: dict[str, Callable[[], object]] = {
        "constant": lambda: _moved(run.device, tf.constant(array)),
        "new staging": lambda: _moved(run.device, _staging(array).fill({"x": array})[0]),
        **{f"{name} staging": partial(_fill_and_move, run.device, kept, array) for name, kept in stagings.items()},
    }
    try:
        ways = {name: repeated(call, turns.slice_s, size / 2**30) for name, call in calls.items()}
        rates = await turns.take(ways)
    finally:
        free()
    what = f"{size >> 10:,} KiB"
    for name, values in rates.items():
        report.figures(f"{what} to the {run.device.kind}: {name}", values, "GiB/s")
        if name != "new staging":
            report.ratio(f"{what}: {name} / new staging", values, rates["new staging"])


async def _measure_overlap(run: PartRun, size: int) -> None:
    """Calls that copy and compute about as long: one in flight, then two, each with a staging of its own."""
    device, report, array = run.device, run.report, _array(size)
    turns = run.turns
    compute = _compute(device, _products(device, array))
    with tf.device(device.name):
        resident = tf.identity(tf.constant(array))
    stagings, free = _stagings(run, array, each=2)
    try:
        for number, (name, kept) in enumerate(stagings.items()):
            own = turns.piece(number, len(stagings))
            ways = {
                "copy alone": repeated(partial(_fill_and_move, device, kept, array), own.slice_s),
                "compute alone": repeated(lambda: compute(resident).numpy(), own.slice_s),
                "1 in flight": _calls(compute, kept[:1], array, own.slice_s),
                "2 in flight": _calls(compute, kept, array, own.slice_s),
            }
            _tell_overlap(report, f"{size >> 10:,} KiB, {name} staging", await own.take(ways))
    finally:
        free()


def _tell_overlap(report: Report, what: str, rates: Mapping[str, list[float]]) -> None:
    for way, values in rates.items():
        report.figures(f"{what}: {way}", values, "calls/s")
    report.ratio(f"{what}: 2 in flight / 1", rates["2 in flight"], rates["1 in flight"])
    if report.on != "GPU":  # nothing is copied to anywhere
        return
    hidden = [
        100 * (1 / copy + 1 / compute - 1 / two) / min(1 / copy, 1 / compute)
        for copy, compute, two in zip(rates["copy alone"], rates["compute alone"], rates["2 in flight"], strict=True)
    ]
    report.figures(f"{what}: of the shorter of copy and compute, hidden by 2", hidden, "%")


def _calls(compute: Any, stagings: list[Staging], array: Array, seconds: float) -> Way:
    """One thread for each staging."""
    free = list(stagings)

    def call(_: object) -> None:
        own = free.pop()
        compute(own.fill({"x": array})[0]).numpy()
        free.append(own)  # the answer is here, so its input is not read any more

    async def way() -> float:
        times = await asyncio.to_thread(timed, call, [array], seconds, callers=len(stagings))
        return len(stagings) * len(times) / sum(times)

    return way


def _stagings(run: PartRun, array: Array, each: int = 1) -> tuple[dict[str, list[Staging]], Callable[[], None]]:
    """By kind of memory, and what gives it back. Locked memory is left out, and reported, where there is none."""
    found = {"kept": [_staging(array) for _ in range(each)]}
    unlocks: list[Callable[[], None]] = []
    if run.device.is_gpu:
        locked = [_staging(array) for _ in range(each)]
        try:
            unlocks += [page_lock(staging._arrays[0][1]) for staging in locked]
            found["locked"] = locked
        except CannotLock as error:
            run.report.not_measured(f"page-locked staging of {array.nbytes >> 10:,} KiB", str(error))

    def free() -> None:
        tf.test.experimental.sync_devices()
        for unlock in unlocks:
            unlock()

    return found, free


def _staging(array: Array) -> Staging:
    return Staging([("x", array.dtype, array.shape)])


def _fill_and_move(device: Device, stagings: list[Staging], array: Array) -> None:
    _moved(device, stagings[0].fill({"x": array})[0])


def _moved(device: Device, tensor: Any) -> None:
    """Returns when the tensor is in the device's memory. On the CPU that is where it was."""
    with tf.device(device.name):
        tf.identity(tensor)
    tf.test.experimental.sync_devices()


def _compute(device: Device, products: int) -> Any:
    with tf.device(device.name):
        weights = tf.random.normal([_WIDTH, _WIDTH], stddev=_WIDTH**-0.5)

    def compute(x: Any) -> Any:
        with tf.device(device.name):
            for _ in range(products):
                x = tf.nn.relu(x @ weights)
            return tf.reduce_sum(x)

    return tf.function(compute, autograph=False)


def _products(device: Device, array: Array) -> int:
    """So many that computing takes about as long as copying."""
    staging = [_staging(array)]
    with tf.device(device.name):
        resident = tf.identity(tf.constant(array))
    several = _compute(device, 4)
    copy_s = _quickest(partial(_fill_and_move, device, staging, array))
    product_s = _quickest(lambda: several(resident).numpy()) / 4
    least, most = _PRODUCTS
    return max(least, min(most, round(copy_s / product_s)))


def _quickest(call: Callable[[], object]) -> float:
    """The first call may compile."""
    call()
    return min(timed(lambda _: call(), [np.empty(0)], 0.02, least=3))


def _array(size: int) -> Array:
    return np.random.default_rng(1).random((size // 4 // _WIDTH, _WIDTH), np.float32)
