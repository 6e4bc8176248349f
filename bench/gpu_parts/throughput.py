"""Ferry's engine beside bare loops: requests of 1, 8 and 64 rows, 1, 2 and 4 batches in flight.

A bare loop calls the SavedModel as it is with so many rows, from as many threads as Ferry has batches in flight;
`direct` does so with the variants that Ferry chose. Predicted: at 64 rows a call Ferry reaches 0.9 of `direct`; of the
bare loop with 1 row it is a multiple, since a call of a GPU takes about as long for 64 rows as for one; 2 in flight
give 1.2 to 1.6 times the rows of 1, for one call's inputs are put together while the other computes, and 4 hardly more
than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bench.gpu_parts.device import APART, NO_GPU, SIGNATURE, PartRun, bare_call, furthest
from bench.gpu_parts.models import ROWS, Array, version_folder
from bench.gpu_parts.report import counted
from bench.gpu_parts.turns import Turns, Way
from bench.peers.best_size import Call, timed
from bench.support.served import Served, served

REQUEST_ROWS, IN_FLIGHT, WHO = (1, 8, 64), (1, 2, 4), ("bare", "direct", "Ferry")

#: Rows that wait or are computed, for each batch in flight: a full batch waits while one is computed.
_WAITING_ROWS = 2 * ROWS


async def measure(run: PartRun) -> None:
    if not run.device.is_gpu:
        run.report.not_measured("Ferry's engine and bare loops on a GPU", f"{NO_GPU}; what follows is the CPU's")
    for model, turns in run.each(run.models):
        await _measure_model(run, model, turns)


async def _measure_model(run: PartRun, model: str, turns: Turns) -> None:
    report = run.report
    inputs, expected = run.samples(model)
    async with AsyncExitStack() as stack:
        servers = {
            count: await stack.enter_async_context(served(run.repository(model), count, **run.settings))
            for count in IN_FLIGHT
        }
        report.fact(f"{model}: variants that Ferry chose, by rows", _chosen(servers[1], model))
        argument, output = names_of(servers[1], model)
        for rows in REQUEST_ROWS:
            batches = [inputs[first : first + rows] for first in range(0, ROWS, rows)]
            answers = await asyncio.gather(*[servers[1].ask(model, {argument: batch}) for batch in batches])
            apart = furthest(np.concatenate([answer[output] for answer in answers]), expected)
            what = f"{model}: Ferry's answers to {counted(rows, 'row')} each, from the CPU's"
            report.bound(what, apart, APART[report.on])
        ways: dict[tuple[str, int, int], Way] = {}
        bare = bare_call(version_folder(run.folder, model))
        for count, server in servers.items():
            run_direct = server.direct(model)
            direct = partial(_direct, run_direct, argument)
            for rows in REQUEST_ROWS:
                ways["bare", count, rows] = _loop(bare, inputs, rows, count, turns.slice_s)
                ways["direct", count, rows] = _loop(direct, inputs, rows, count, turns.slice_s)
                asks = Requests(server, model, argument, inputs)
                ways["Ferry", count, rows] = asks.way(rows, count, turns.slice_s)
        rates = await turns.take({repr(key): way for key, way in ways.items()})
    _tell(run, model, {key: rates[repr(key)] for key in ways})


def _tell(run: PartRun, model: str, found: Mapping[tuple[str, int, int], list[float]]) -> None:
    report = run.report
    for count in IN_FLIGHT:
        for rows in REQUEST_ROWS:
            same, mine = f"{counted(rows, 'row')}, {count} in flight", found["Ferry", count, rows]
            each = [
                f"{who} {report.figures(f'{model}: {who}, {same}', found[who, count, rows], 'rows/s', quiet=True)}"
                for who in WHO
            ]
            bare = report.ratio(f"{model}: Ferry / bare loop, {same}", mine, found["bare", count, rows], quiet=True)
            most = report.ratio(
                f"{model}: Ferry / direct, {ROWS} rows, {same}", mine, found["direct", count, ROWS], quiet=True
            )
            report.line(f"{model}: {same}, {counted(len(mine), 'round')}", "; ".join(each))
            report.line("  Ferry / bare loop; / direct calls of 64 rows", f"{bare}; {most}")
    for who in WHO:
        for count in IN_FLIGHT[1:]:
            report.ratio(
                f"{model}: {who}, {ROWS} rows, {count} in flight / 1", found[who, count, ROWS], found[who, 1, ROWS]
            )


def _loop(call: Call, inputs: Array, rows: int, threads: int, seconds: float) -> Way:
    """Each thread makes the next call when its last one is answered."""
    batches = [inputs[first : first + rows] for first in range(0, ROWS, rows)]

    async def way() -> float:
        times = await asyncio.to_thread(timed, call, batches, seconds, callers=threads)
        return threads * rows * len(times) / sum(times)

    return way


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests for a model that is served in this process."""

    server: Served
    model: str
    argument: str
    inputs: Array

    def way(self, rows: int, in_flight: int, seconds: float) -> Way:
        """Callers enough for so many batches in flight, each with requests of so many rows; rows/s."""
        batches = [self.inputs[first : first + rows] for first in range(0, ROWS, rows)]

        async def ask(number: int) -> None:
            await self.server.ask(self.model, {self.argument: batches[number % len(batches)]})

        async def way() -> float:
            return rows * (await self.server.loop(ask, in_flight * _WAITING_ROWS // rows, seconds)).rate

        return way


def _direct(run: Any, argument: str, batch: Array) -> object:
    return run({argument: np.ascontiguousarray(batch)})


def _chosen(server: Served, model: str) -> str:
    found = server.facts.of(model, 1).variants.get(SIGNATURE, [])
    return ", ".join(f"{each['batch_size']}: {each['variant']}" for each in found) or "plain"


def names_of(server: Served, model: str) -> tuple[str, str]:
    """Of its only input and its only output."""
    signature = server.model(model).signatures[SIGNATURE]
    (argument,), (output,) = signature.inputs, signature.outputs
    return argument, output
