"""Trees of 5 to 40 leaves through a pipeline with `fold`, beside callers who ask for the nodes themselves.

All servers have max_batch_size 256, so that the nodes that are ready of 64 trees fit into a call: a row of 256 takes
10 % less than one of 64, and what Python takes for a call is shared by four times as many.

Predicted: a call of 256 nodes takes ten to twenty times as long as one of one node, and each call of its own has the
server's work as well: 20 times as many trees as by nodes. A tree has some nine levels, each with the fixed part of a
call: 5 times as many as by levels through the same server; 2.5 times as many as by bare calls for levels, without a
server, without goal. The event loop takes 33 to 35 % of the processor. One caller alone waits two to three times as
long as levels by bare calls take: a level is a request as any other, which is queued, judged and counted, and that
takes as long as a call of few rows. `sentence` is the same in three steps, so it takes more Python around the nodes,
and less inside the models.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
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

#: Of a full call.
ROWS = 256

Way = Callable[[Tree], Awaitable[Array]]

FOLD, SENTENCE = "fold", "fold in three steps (sentence)"
NODES, SHARED_NODES = "nodes, own calls", "nodes, calls shared with others"
LEVELS, DIRECT_LEVELS = "levels, own calls", "levels, own calls, no server"


async def measure(folder: Path, options: Options) -> Figures:
    models, sent = folder / "models", trees(TREES, "small")
    save_models(models)
    async with (
        served(models, options.cores, max_batch_size=ROWS) as shared,
        served(models, options.cores, max_batch_size=ROWS, batching=False) as single,
    ):
        ways = _ways(shared, single)
        furthest = [await furthest_of(way, sent) for way in ways.values()]

        def loop(name: str, way: Way) -> Callable[[], Awaitable[Run]]:
            server = single if "own calls" in name else shared
            callers = 1 if name == DIRECT_LEVELS else options.callers
            return lambda: server.loop(lambda number: way(sent[number % TREES]), callers, options.seconds)

        runs = await in_turn({name: loop(name, way) for name, way in ways.items()}, options.rounds)
        alone = [await _alone(shared, ways, sent, options.seconds) for _ in range(options.rounds)]

    rates = {name: [each.rate for each in own] for name, own in runs.items()}
    rows = [run.mean_rows("cell") for run in runs[FOLD]], [run.mean_rows("inner") for run in runs[SENTENCE]]
    loop_percent = [100 * run.loop_s / run.cpu_s for run in runs[FOLD]]
    print(f"  rows in a call: {spread(rows[0])}; in three steps {spread(rows[1])}")
    print(f"  the event loop's share of the processor: {spread(loop_percent)} %")
    print(f"  fold / {SHARED_NODES}: {spread(ratios(rates[FOLD], rates[SHARED_NODES]), '.1f')}x")
    print(f"  fold / {DIRECT_LEVELS}: {spread(ratios(rates[FOLD], rates[DIRECT_LEVELS]), '.1f')}x")
    folds_ms, levels_ms = zip(*alone, strict=True)
    print(f"  one caller, p50: {spread(folds_ms, '.1f')} ms; levels by bare calls {spread(levels_ms, '.1f')} ms")
    return {
        "to_node_calls": ratios(rates[FOLD], rates[NODES]),
        "to_level_calls": ratios(rates[FOLD], rates[LEVELS]),
        "python_percent": [100 - 100 * run.called_s / run.seconds / options.cores for run in runs[FOLD]],
        "one_caller_ms": folds_ms,
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


async def _alone(server: Served, ways: Mapping[str, Way], sent: Sequence[Tree], seconds: float) -> tuple[float, float]:
    """p50, in ms, of one caller of the fold, and of levels by bare calls."""
    fold, levels = [await _p50_ms(server, ways[name], sent, seconds / 2) for name in (FOLD, DIRECT_LEVELS)]
    return fold, levels


async def _p50_ms(server: Served, way: Way, sent: Sequence[Tree], seconds: float) -> float:
    times = list[float]()

    async def ask(number: int) -> None:
        begin_s = time.perf_counter()
        await way(sent[number % TREES])
        times.append(1000 * (time.perf_counter() - begin_s))

    await server.loop(ask, 1, seconds)
    return median(times)
