"""Trees through the pipeline and through callers of its nodes, in turn, and the figures of each round."""

from __future__ import annotations

import argparse
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import tensorflow as tf

from app.core.inference import Array
from bench.support.served import Run, Served, apart, served
from bench.tree_parts.tree_callers import by_levels, by_nodes
from bench.tree_parts.treelstm import Tree, by_numpy, save_models, trees

#: Those that are sent, in turn.
TREES = 512

#: Of a full call.
ROWS = 256

Way = Callable[[Tree], Awaitable[Array]]

FOLD, NODES, LEVELS = "fold", "nodes, own calls", "levels, own calls"


async def measure(folder: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    """Figures by goal, one of each round."""
    tf.config.threading.set_intra_op_parallelism_threads(1)  # of what is compared with Ferry, too
    models, sent = folder / "models", trees(TREES)
    save_models(models)
    async with (
        served(models, options.cores, max_batch_size=ROWS) as shared,
        served(models, options.cores, max_batch_size=ROWS, batching=False) as single,
    ):
        ways = _ways(shared, single)
        furthest = [await furthest_of(way, sent) for way in ways.values()]
        runs: dict[str, list[Run]] = {name: [] for name in ways}
        for number in range(options.rounds + 1):
            for name, way in ways.items():
                server = shared if name == FOLD else single
                run = await server.loop(lambda at, way=way: way(sent[at % TREES]), options.callers, options.seconds)
                if number:  # the first round warms up
                    runs[name].append(run)
        alone_ms = [await _p50_ms(shared, ways[FOLD], sent, options.seconds / 2) for _ in range(options.rounds)]
    for name, each in runs.items():
        print(f"  {name:30} {median(run.rate for run in each):6.0f} a second")
    print(f"  rows in a call: {median(run.mean_rows('cell') for run in runs[FOLD]):.0f}")
    return {
        "to_node_calls": _ratios(runs, NODES),
        "to_level_calls": _ratios(runs, LEVELS),
        "python_percent": [100 - 100 * run.called_s / run.seconds / options.cores for run in runs[FOLD]],
        "one_caller_ms": alone_ms,
        "furthest": furthest,
    }


def _ways(shared: Served, single: Served) -> dict[str, Way]:
    """How the root of a tree is asked for."""

    async def fold(tree: Tree) -> Array:
        return (await shared.ask("tree", tree.as_tree))["root"]

    async def asked(inputs: dict[str, Array]) -> dict[str, Array]:
        return await single.ask("cell", inputs)

    return {FOLD: fold, NODES: lambda tree: by_nodes(asked, tree), LEVELS: lambda tree: by_levels(asked, tree)}


async def furthest_of(way: Way, sent: Sequence[Tree]) -> float:
    """How far the answers are from those in numpy."""
    return max([apart(await way(tree), by_numpy(tree)) for tree in sent[:32]])


async def _p50_ms(server: Served, way: Way, sent: Sequence[Tree], seconds: float) -> float:
    """Of one caller."""
    times = list[float]()

    async def ask(number: int) -> None:
        begin_s = time.perf_counter()
        await way(sent[number % TREES])
        times.append(1000 * (time.perf_counter() - begin_s))

    await server.loop(ask, 1, seconds)
    return median(times)


def _ratios(runs: Mapping[str, Sequence[Run]], other: str) -> list[float]:
    """The fold's trees a second, as a multiple of another way's, by round."""
    return [one.rate / two.rate for one, two in zip(runs[FOLD], runs[other], strict=True)]
