"""Trees of 5 to 40 leaves through a pipeline with `fold`, beside callers who ask for the nodes themselves.

Predicted: with 64 trees calls of 64 nodes are full. Such a call takes four times as long as one of one node, and each
call of its own has the server's work as well: 30 times as many trees as by nodes. A tree has some ten levels: 7 times
as many as by levels. `sentence` is the same in three steps, so it takes three times as much Python around the nodes.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median

from app.core.inference import Array
from bench.pipelines.figures import Figures
from bench.pipelines.options import Options, in_turn, ratios, spread
from bench.pipelines.served import Run, Served, apart, served
from bench.pipelines.tree_callers import by_levels, by_nodes
from bench.pipelines.treelstm import Tree, by_numpy, save_models, trees

#: Those that are sent, in turn.
TREES = 512

Way = Callable[[Tree], Awaitable[Array]]

FOLD, SENTENCE = "fold", "fold in three steps (sentence)"
NODES, SHARED_NODES = "nodes, own calls", "nodes, calls shared with others"
LEVELS, DIRECT_LEVELS = "levels, own calls", "levels, own calls, no server"


async def measure(folder: Path, options: Options) -> Figures:
    models, sent = folder / "models", trees(TREES, "small")
    save_models(models)
    async with served(models, options.cores) as shared, served(models, options.cores, batching=False) as single:
        ways = _ways(shared, single)
        furthest = [await furthest_of(way, sent) for way in ways.values()]

        def loop(name: str, way: Way) -> Callable[[], Awaitable[Run]]:
            server = single if "own calls" in name else shared
            callers = 1 if name == DIRECT_LEVELS else options.callers
            return lambda: server.loop(lambda number: way(sent[number % TREES]), callers, options.seconds)

        runs = await in_turn({name: loop(name, way) for name, way in ways.items()}, options.rounds)
        alone_ms = [await _one_caller_ms(shared, sent, options.seconds) for _ in range(options.rounds)]

    rates = {name: [each.rate for each in own] for name, own in runs.items()}
    rows = [run.mean_rows("cell") for run in runs[FOLD]], [run.mean_rows("inner") for run in runs[SENTENCE]]
    print(f"  rows in a call: {spread(rows[0])}; in three steps {spread(rows[1])}")
    print(f"  fold / {SHARED_NODES}: {spread(ratios(rates[FOLD], rates[SHARED_NODES]), '.1f')}x")
    levels = [max(pair) for pair in zip(rates[LEVELS], rates[DIRECT_LEVELS], strict=True)]  # whichever is faster
    return {
        "to_node_calls": ratios(rates[FOLD], rates[NODES]),
        "to_level_calls": ratios(rates[FOLD], levels),
        "python_percent": [100 - 100 * run.called_s / run.seconds / options.cores for run in runs[FOLD]],
        "one_caller_p50_ms": alone_ms,
        "furthest": furthest,
    }


def _ways(shared: Served, single: Served) -> dict[str, Way]:
    """How the root of a tree is asked for."""
    call = single.direct("cell")

    async def fold(tree: Tree) -> Array:
        return (await shared.ask("tree", tree.as_tree))["root"]

    async def sentence(tree: Tree) -> Array:
        return (await shared.ask("sentence", tree.as_sentence))["root"]

    async def directly(inputs: dict[str, Array]) -> dict[str, Array]:
        return call(inputs)

    return {
        FOLD: fold,
        SENTENCE: sentence,
        NODES: lambda tree: by_nodes(lambda inputs: single.ask("cell", inputs), tree),
        SHARED_NODES: lambda tree: by_nodes(lambda inputs: shared.ask("cell", inputs), tree),
        LEVELS: lambda tree: by_levels(lambda inputs: single.ask("cell", inputs), tree),
        DIRECT_LEVELS: lambda tree: by_levels(directly, tree),
    }


async def furthest_of(way: Way, sent: Sequence[Tree]) -> float:
    """How far the answers are from those in numpy."""
    return max([apart(await way(tree), by_numpy(tree)) for tree in sent[:32]])


async def _one_caller_ms(server: Served, sent: Sequence[Tree], seconds: float) -> float:
    times = list[float]()

    async def ask(number: int) -> None:
        begin_s = time.perf_counter()
        await server.ask("tree", sent[number % TREES].as_tree)
        times.append(1000 * (time.perf_counter() - begin_s))

    await server.loop(ask, 1, seconds)
    return median(times)
