"""Trees through a pipeline with `fold` beside callers who compute them by requests of their own.

Predicted: 64 trees of 5 to 40 leaves keep calls of 64 nodes full. Such a call takes a few times as long as one of one
node, so a node is some 30 times as cheap as in a call of its own; a tree has ten levels of four nodes on average, so
that levels take five times as many calls per node as full ones.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench.pipelines.figures import Figures
from bench.pipelines.options import Options, in_turn, ratios, spread
from bench.pipelines.served import Run, Served, apart, served
from bench.pipelines.tree_callers import by_levels, by_nodes
from bench.pipelines.treelstm import Tree, by_numpy, save_models, trees

#: Those that are sent, in turn.
_TREES = 512


async def measure(folder: Path, options: Options) -> Figures:
    models, sent = folder / "models", trees(_TREES, "small")
    save_models(models)
    async with served(models, options.cores) as shared, served(models, options.cores, batching=False) as single:
        ways = _ways(shared, single)
        furthest = [await _furthest(way, sent) for way in ways.values()]

        def run(way: str) -> Callable[[], Awaitable[Run]]:
            server = single if "own calls" in way else shared
            callers = 1 if way == _DIRECT else options.callers
            return lambda: server.loop(lambda number: ways[way](sent[number % _TREES]), callers, options.seconds)

        runs = await in_turn({way: run(way) for way in ways}, options.rounds)
        alone_ms = [await _one_caller_ms(shared, sent, options.seconds) for _ in range(options.rounds)]

    rates = {way: [each.rate for each in own] for way, own in runs.items()}
    folds, called = runs[_FOLD], [100 * each.called_s / each.seconds / options.cores for each in runs[_FOLD]]
    print(f"  rows in a call of the cell: {median(run.mean_rows('cell') for run in folds):.0f}")
    print(f"  fold / nodes that share calls with other callers': {spread(ratios(rates[_FOLD], rates[_SHARED_NODES]), '.1f')}x")
    by_level = [max(pair) for pair in zip(rates[_LEVELS], rates[_DIRECT], strict=True)]  # whichever is faster
    return {
        "to_node_calls": ratios(rates[_FOLD], rates[_NODES]),
        "to_level_calls": ratios(rates[_FOLD], by_level),
        "python_percent": [100 - percent for percent in called],
        "one_caller_p50_ms": alone_ms,
        "furthest": furthest,
    }


_FOLD, _NODES, _SHARED_NODES = "fold", "nodes, own calls", "nodes, shared calls"
_LEVELS, _DIRECT = "levels, own calls", "levels, own calls without a server"


def _ways(shared: Served, single: Served) -> dict[str, Callable[[Tree], Awaitable[Any]]]:
    """How scores are asked for."""
    direct = {name: single.direct(name) for name in ("leaf", "cell", "head")}

    async def fold(tree: Tree) -> Any:
        return (await shared.ask("tree", tree.inputs))["scores"]

    async def call(name: str, inputs: Any) -> Any:
        return direct[name](inputs)

    return {
        _FOLD: fold,
        _NODES: lambda tree: by_nodes(single.ask, tree),
        _SHARED_NODES: lambda tree: by_nodes(shared.ask, tree),
        _LEVELS: lambda tree: by_levels(single.ask, tree),
        _DIRECT: lambda tree: by_levels(call, tree),
    }


async def _furthest(way: Callable[[Tree], Awaitable[Any]], sent: Any) -> float:
    return max([apart(await way(tree), by_numpy(tree)) for tree in sent[:32]])


async def _one_caller_ms(server: Served, sent: Any, seconds: float) -> float:
    times = list[float]()

    async def ask(number: int) -> None:
        begin_s = time.perf_counter()
        await server.ask("tree", sent[number % _TREES].inputs)
        times.append(1000 * (time.perf_counter() - begin_s))

    await server.loop(ask, 1, seconds)
    return median(times)

