"""Plain, frozen and XLA: each beside plain, and how far its answers lie from plain's.

Predicted: a GPU's calls of small models are launches of kernels, so XLA, which fuses them, is 1.5 to 3 times as fast
for the transformer; frozen gives 1.1 to 1.5 times for the convolutions, as batch normalisation is folded away. With
TensorFlow's TF32 variants may lie further from plain than Ferry's tolerance for float32 (1e-4), which was chosen on
CPUs: then Ferry uses none of them, and `by Ferry's tolerance` says so.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from app.core.agreement import agree, tolerances_of
from app.runtimes.tensorflow.error_mapping import first_meaningful_line
from app.runtimes.tensorflow.execution.variant import ALTERNATIVES, XLA, Variant, VariantMaker, VariantNotPossible
from app.runtimes.tensorflow.saved_model.saved_model import SavedModel
from bench.gpu_parts.device import APART, NO_GPU, SIGNATURE, PartRun, furthest
from bench.gpu_parts.models import Array, version_folder
from bench.gpu_parts.report import counted
from bench.gpu_parts.turns import Turns, repeated

ROWS = (1, 8, 64)

#: Larger than any model here, so that each can be frozen.
_FROZEN_LIMIT_MB = 1000


class Case(NamedTuple):
    """What is compared with plain."""

    model: str
    variant: str
    rows: int

    def __str__(self) -> str:
        return f"{self.model}: {self.variant}, {counted(self.rows, 'row')}"


async def measure(run: PartRun) -> None:
    if not run.device.is_gpu:
        run.report.not_measured("plain, frozen and XLA on a GPU", f"{NO_GPU}; what follows is the CPU's")
    cases = [Case(model, name, rows) for name in ALTERNATIVES for rows in ROWS for model in run.models]
    loaded = {model: SavedModel(version_folder(run.folder, model), tf32=run.device.tf32) for model in run.models}
    for case, turns in run.each(cases):
        what = str(case)
        try:
            await _compare(run, loaded[case.model], case, turns)
        except VariantNotPossible as reason:
            run.report.not_measured(what, str(reason))
        except Exception as error:  # whatever TensorFlow raises: the other variants are still to be measured
            run.report.not_measured(what, f"it failed: {first_meaningful_line(error)}")


async def _compare(run: PartRun, loaded: SavedModel, case: Case, turns: Turns) -> None:
    report, function = run.report, loaded._functions[SIGNATURE]
    (argument,) = function.signature.inputs
    inputs = {argument: run.samples(case.model)[0][: case.rows]}
    plain = function.prepare(function.plain, inputs)
    expected = plain(inputs)
    begin_s = time.perf_counter()
    variant = _made(function, case.variant, inputs)
    call = function.prepare(variant.graph, inputs)
    found = call(inputs)  # XLA compiles
    made_s = time.perf_counter() - begin_s
    (output,) = expected
    what = str(case)
    accepted = (
        "accepted"
        if agree(expected, found, tolerances_of(function.signature))
        else "NOT ACCEPTED: Ferry would not use it"
    )
    report.fact(f"{what}: by Ferry's tolerance", f"{accepted}; made in {made_s:.1f} s")
    report.bound(f"{what}: answers, from plain's", furthest(found[output], expected[output]), APART[report.on])
    ways = {
        "plain": repeated(lambda: plain(inputs), turns.slice_s),
        case.variant: repeated(lambda: call(inputs), turns.slice_s),
    }
    rates = await turns.take(ways)
    report.ratio(f"{what} / plain", rates[case.variant], rates["plain"])


def _made(function: Any, name: str, inputs: dict[str, Array]) -> Variant:
    """XLA for exactly these shapes, as Ferry compiles buckets: lengths of texts are open."""
    maker = VariantMaker(function.signature, function.plain, frozen_limit_mb=_FROZEN_LIMIT_MB)
    return maker.compile(inputs) if name == XLA else maker.make(name, inputs)
