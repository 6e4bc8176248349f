"""Trees through a pipeline with `fold`, beside whole trees in one graph, by tf.while_loop.

The loop pads a batch to its largest tree and is called as often as possible, at the kind and batch size that are best
for the trees; neither HTTP nor batching costs it anything. It does the same work: each node by the cell, or
(`sentence`) the leaves by a product of their own. Predicted: trees of one size need no padding, and XLA computes a node
of 64 trees in less time than TensorFlow's product, which arranges the weights anew in each call: 0.6 times as many
trees, and 0.4 times in three steps. Of mixed sizes, the largest of 8 has 150 leaves and the mean 26: most of what the
loop computes is padding, so twice as many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from app.core.inference import Array
from bench.pipelines.figures import Figures
from bench.pipelines.options import Options, ratios, spread
from bench.pipelines.served import Run, Served, apart, served
from bench.pipelines.treelstm import Tree, by_numpy, save_models, trees
from bench.pipelines.trees import ROWS
from bench.pipelines.whole_tree import BATCHES, KINDS, PIPELINES, Setting, WholeTrees
from bench.pipelines.whole_tree import save_models as save_whole

_TREES = 512


async def measure(folder: Path, options: Options) -> Figures:
    save_models(folder / "models")
    save_whole(folder)
    tf.get_logger().setLevel("ERROR")  # it warns of many shapes
    figures, furthest = Figures(), list[float]()
    async with served(folder / "models", options.cores, max_batch_size=ROWS) as server:
        for pipeline in PIPELINES:
            whole = WholeTrees(folder, pipeline)
            for kind in ("equal", "mixed"):
                sent = trees(_TREES, kind)
                furthest.append(await _furthest(server, pipeline, whole, sent[:32]))
                setting = await _best(whole, sent, options)
                folds, loops = await _in_turn(server, pipeline, whole, sent, setting, options)
                rates, alone = [run.rate for run in folds], [run.answered / run.called_s for run in folds]
                print(f"  {kind}: {pipeline} {spread(rates)}; loop, {setting}, {spread(loops)} trees/s")
                print(f"    {pipeline}, by the seconds inside its calls alone: {spread(alone)} trees/s", flush=True)
                figures[f"{pipeline}_to_loop_{kind}"] = ratios(rates, loops)
    return figures | {"furthest": furthest}


async def _ask(server: Served, pipeline: str, tree: Tree) -> Array:
    inputs = tree.as_tree if pipeline == "tree" else tree.as_sentence
    return (await server.ask(pipeline, inputs))["root"]


async def _furthest(server: Served, pipeline: str, whole: WholeTrees, sent: Sequence[Tree]) -> float:
    expected = np.concatenate([by_numpy(tree) for tree in sent])
    found = [whole.roots(sent, kind) for kind in KINDS]
    found.append(np.concatenate([await _ask(server, pipeline, tree) for tree in sent]))
    return max(apart(each, expected) for each in found)


async def _best(whole: WholeTrees, sent: Sequence[Tree], options: Options) -> Setting:
    """Each setting is tried for a moment, after all shapes were met."""
    rates = dict[Setting, float]()
    for setting in [Setting(kind, number) for kind in KINDS for number in BATCHES]:
        whole.warm_up(sent, setting)
        rates[setting] = await _loop_rate(whole, sent, setting, options, options.seconds / 4)
    print("  loop, trees/s:", "; ".join(f"{setting} {rate:.0f}" for setting, rate in rates.items()), flush=True)
    return max(rates, key=rates.__getitem__)


async def _in_turn(  # noqa: PLR0917 - what is compared
    server: Served, pipeline: str, whole: WholeTrees, sent: Sequence[Tree], setting: Setting, options: Options
) -> tuple[list[Run], list[float]]:
    """By round the pipeline's run, and the loop's trees/s; the first round warms up."""

    async def ask(number: int) -> None:
        await _ask(server, pipeline, sent[number % _TREES])

    folds, loops = list[Run](), list[float]()
    for _ in range(options.rounds + 1):
        folds.append(await server.loop(ask, options.callers, options.seconds))
        loops.append(await _loop_rate(whole, sent, setting, options, options.seconds))
    return folds[1:], loops[1:]


async def _loop_rate(
    whole: WholeTrees, sent: Sequence[Tree], setting: Setting, options: Options, seconds: float
) -> float:
    """As many loops as there are cores."""
    loops = [asyncio.to_thread(whole.rate, sent, setting, seconds) for _ in range(options.cores)]
    return sum(await asyncio.gather(*loops))
