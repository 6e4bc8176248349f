"""Replicas: a model on 1, 2 and all GPUs, fed from one queue.

Predicted: on n GPUs 0.9 n times the rows of one for the dense net and MobileNetV2 with requests of 64 rows, until one
event loop cannot feed them any more. Where there is one GPU, or in a dry run one CPU, two logical devices share it,
which shows that all of it runs, and no gain.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from bench.gpu_parts.device import APART, NO_GPU, PartRun, furthest
from bench.gpu_parts.models import ROWS
from bench.gpu_parts.report import counted
from bench.gpu_parts.throughput import Requests, names_of
from bench.gpu_parts.turns import Turns
from bench.support.served import served


async def measure(run: PartRun) -> None:
    device, report = run.device, run.report
    if not device.is_gpu:
        report.not_measured("replicas on several GPUs", f"{NO_GPU}; what follows are {device.count} logical CPUs")
    elif device.shared:
        reason = f"there is one GPU; what follows are {device.count} logical ones on it"
        report.not_measured("replicas on several GPUs", reason)
    for model, turns in run.each(run.models):
        await _measure_model(run, model, turns)


async def _measure_model(run: PartRun, model: str, turns: Turns) -> None:
    report, counts = run.report, sorted({1, 2, run.device.count})
    inputs, expected = run.samples(model)
    async with AsyncExitStack() as stack:
        ways = {}
        for count in counts:
            server = await stack.enter_async_context(
                served(run.repository(model), 1, **{**run.settings, "replicas": count})
            )
            argument, output = names_of(server, model)
            answers = await server.ask(model, {argument: inputs})
            apart = furthest(answers[output], expected)
            report.bound(f"{model}: answers of {counted(count, 'replica')}, from the CPU's", apart, APART[report.on])
            report.fact(f"{model}: devices of {counted(count, 'replica')}", ", ".join(server.engine.devices))
            ways[f"{count}"] = Requests(server, model, argument, inputs).way(ROWS, 2 * count, turns.slice_s)
        rates = await turns.take(ways)
    for count in counts:
        report.figures(f"{model}: {counted(count, 'replica')}, requests of {ROWS} rows", rates[f"{count}"], "rows/s")
        if count > 1:
            report.ratio(f"{model}: {count} replicas / 1", rates[f"{count}"], rates["1"])
