"""Callers who compute a TreeLSTM without a pipeline: a node at a time, or a level at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np

from app.core.inference import Array
from bench.tree_parts.treelstm import WIDTH, Tree

#: From the inputs of the cell to its outputs.
Ask = Callable[[dict[str, Array]], Awaitable[dict[str, Array]]]

_NONE = np.zeros((1, WIDTH), np.float32)
_NO_WORD = np.zeros(1, np.int32)


async def by_nodes(ask: Ask, tree: Tree) -> Array:
    """Each node is a request, one after the other. The root's h: [1, WIDTH]."""
    none = {"left_h": _NONE, "left_c": _NONE, "right_h": _NONE, "right_c": _NONE}
    states = [await ask({"word": tree.words[at : at + 1], **none}) for at in range(tree.leaves)]
    for at, other in tree.children.tolist():
        left, right = states[at], states[other]
        children = {"left_h": left["h"], "left_c": left["c"], "right_h": right["h"], "right_c": right["c"]}
        states.append(await ask({"word": _NO_WORD, **children}))
    return states[-1]["h"]


async def by_levels(ask: Ask, tree: Tree) -> Array:
    """Each level is a request; the first one has the leaves. The root's h: [1, WIDTH]."""
    h, c = np.zeros((2, 2 * tree.leaves, WIDTH), np.float32)  # the last is that of no child
    children, words = tree.as_tree["children"], tree.as_tree["words"]
    for level in levels(tree):
        left, right = children[level].T
        inputs = {"left_h": h[left], "left_c": c[left], "right_h": h[right], "right_c": c[right]}
        states = await ask({"word": words[level], **inputs})
        h[level], c[level] = states["h"], states["c"]
    return h[-2:-1]


def levels(tree: Tree) -> list[Array]:
    """The leaves, then again and again the nodes whose children are there."""
    height, found = [0] * tree.leaves, [list(range(tree.leaves))]
    for node, (left, right) in enumerate(tree.children.tolist(), tree.leaves):
        own = 1 + max(height[left], height[right])
        height.append(own)
        if own == len(found):
            found.append([])
        found[own].append(node)
    return [np.array(level) for level in found]
