"""Callers who compute a TreeLSTM without a pipeline: a node at a time, or a level at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np

from app.core.inference import Array
from bench.pipelines.treelstm import WIDTH, Tree

#: From the name of a model and its inputs to its outputs.
Ask = Callable[[str, dict[str, Array]], Awaitable[dict[str, Array]]]


async def by_nodes(ask: Ask, tree: Tree) -> Array:
    """Each leaf, each inner node and the scores are a request, one after the other."""
    states = [await ask("leaf", {"token": tree.tokens[at : at + 1]}) for at in range(tree.leaves)]
    for left, right in tree.children.tolist():
        states.append(await ask("cell", _inputs(states[left], states[right])))
    return (await ask("head", {"h": states[-1]["h"]}))["scores"]


def _inputs(left: dict[str, Array], right: dict[str, Array]) -> dict[str, Array]:
    return {"left_h": left["h"], "left_c": left["c"], "right_h": right["h"], "right_c": right["c"]}


async def by_levels(ask: Ask, tree: Tree) -> Array:
    """The leaves are a request, so is each level of inner nodes, and the scores."""
    h, c = np.empty((2, 2 * tree.leaves - 1, WIDTH), np.float32)
    leaves = await ask("leaf", {"token": tree.tokens})
    h[: tree.leaves], c[: tree.leaves] = leaves["h"], leaves["c"]
    for level in levels(tree):
        left, right = tree.children[level - tree.leaves].T
        states = await ask("cell", {"left_h": h[left], "left_c": c[left], "right_h": h[right], "right_c": c[right]})
        h[level], c[level] = states["h"], states["c"]
    return (await ask("head", {"h": h[-1:]}))["scores"]


def levels(tree: Tree) -> list[Array]:
    """The inner nodes whose children are computed by then, level by level."""
    height, found = [0] * tree.leaves, list[list[int]]()
    for node, (left, right) in enumerate(tree.children.tolist(), tree.leaves):
        own = max(height[left], height[right])
        height.append(own + 1)
        if own == len(found):
            found.append([])
        found[own].append(node)
    return [np.array(level) for level in found]
