"""Whole trees in one graph: tf.while_loop over the nodes of a batch, padded to its largest tree.

Each turn of the loop computes one node of every tree, and writes it into the states in place. Either all nodes are
computed there, as by the pipeline `tree`, or the leaves come first, in one product, as by `sentence`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.python.xla import dynamic_update_slice

from app.core.inference import Array
from bench.pipelines.served import SIGNATURE, save
from bench.pipelines.treelstm import WIDTH, Tree, gates_of_children, gates_of_words, leaf_state, state

BATCHES = (8, 16, 32, 64)
KINDS = ("plain", "xla")

#: Those that do the same work.
PIPELINES = ("tree", "sentence")

#: To which numbers of leaves XLA's batches are padded: each is a program of its own.
_BUCKETS = [number << power for power in range(1, 7) for number in (4, 5, 6, 7)]


def save_models(folder: Path) -> None:
    specs = {"words": [None, None], "children": [None, None, 2], "last": [None]}
    inputs = {name: tf.TensorSpec(shape, tf.int32) for name, shape in specs.items()}
    for kind, write in zip(KINDS, (_written, _written_by_xla), strict=True):
        for pipeline in PIPELINES:
            save(folder, f"{kind}_{pipeline}", partial(whole, write, pipeline == "sentence"), **inputs)


def _written(states: tf.Tensor, node: tf.Tensor, own: tf.Tensor) -> tf.Tensor:
    """A copy of all states would take longer than the cell."""
    return tf.raw_ops.InplaceUpdate(x=states, i=[node], v=own[None])


def _written_by_xla(states: tf.Tensor, node: tf.Tensor, own: tf.Tensor) -> tf.Tensor:
    """XLA does that in place, too."""
    return dynamic_update_slice(states, own[None], tf.stack([node, 0, 0]))


Write = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


def whole(
    write: Write, leaves_first: bool, words: tf.Tensor, children: tf.Tensor, last: tf.Tensor
) -> dict[str, tf.Tensor]:
    """The root's h of each tree.

    Args:
        write: from [nodes, trees, WIDTH], a node and its [trees, WIDTH] to the first with these in it.
        words: [leaves, trees], or of all nodes.
        children: [nodes of the loop, trees, 2]; the node after the last one is none.
        last: [trees] the root.
    """
    trees, turns, at_tree = tf.shape(words)[1], tf.shape(children)[0], tf.range(tf.shape(words)[1])
    of_words = tf.reshape(gates_of_words(tf.reshape(words, [-1])), [-1, trees, 5 * WIDTH])
    first = tf.shape(words)[0] if leaves_first else 0
    places = children * trees + at_tree[:, None]

    def turn(number: tf.Tensor, h: tf.Tensor, c: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        left, right = places[number, :, 0], places[number, :, 1]
        all_h, all_c = tf.reshape(h, [-1, WIDTH]), tf.reshape(c, [-1, WIDTH])
        gates = gates_of_children(tf.gather(all_h, left), tf.gather(all_h, right))
        if not leaves_first:
            gates += of_words[number]
        new_h, new_c = state(gates, tf.gather(all_c, left), tf.gather(all_c, right))
        return number + 1, write(h, first + number, new_h), write(c, first + number, new_c)

    rest = tf.zeros([turns + 1, trees, WIDTH])
    leaves = leaf_state(of_words) if leaves_first else ()
    states = [tf.concat([own, rest], 0) for own in leaves] or [rest, tf.zeros_like(rest)]
    begin = (tf.constant(0), *states)
    _, h, _ = tf.while_loop(lambda number, *_: number < turns, turn, begin, parallel_iterations=1)
    return {"root": tf.gather(tf.reshape(h, [-1, WIDTH]), last * trees + at_tree)}


@dataclass(frozen=True)
class Setting:
    """How the model is executed, and how many trees are in a batch."""

    kind: str
    trees: int

    def __str__(self) -> str:
        return f"{self.kind}, {self.trees} trees"


class WholeTrees:
    """The SavedModels that do the work of a pipeline, called by a bare loop: batches are there at once, and answers go
    nowhere.
    """

    def __init__(self, folder: Path, pipeline: str) -> None:
        self._padded = padded_leaves if pipeline == "sentence" else padded_nodes
        self._models = {kind: tf.saved_model.load(str(folder / f"{kind}_{pipeline}" / "1")) for kind in KINDS}
        plain, compiled = (model.signatures[SIGNATURE] for model in self._models.values())
        self._calls: dict[str, Callable[..., Any]] = {
            "plain": plain,
            "xla": tf.function(lambda **inputs: compiled(**inputs), jit_compile=True),  # noqa: PLW0108 - not its name
        }

    def roots(self, trees: Sequence[Tree], kind: str) -> Array:
        """[trees, WIDTH]"""
        leaves = max([tree.leaves for tree in trees])
        if kind == "xla":
            leaves = next(bucket for bucket in _BUCKETS if bucket >= leaves)
        inputs = self._padded(trees, leaves)
        found: Array = self._calls[kind](**{name: tf.constant(own) for name, own in inputs.items()})["root"].numpy()
        return found

    def rate(self, sent: Sequence[Tree], setting: Setting, seconds: float) -> float:
        """Trees a second."""
        done, begin_s = 0, time.perf_counter()
        while (taken_s := time.perf_counter() - begin_s) < seconds:
            at = done % len(sent)
            self.roots(sent[at : at + setting.trees], setting.kind)
            done += setting.trees
        return done / taken_s

    def warm_up(self, sent: Sequence[Tree], setting: Setting) -> None:
        for at in range(0, len(sent), setting.trees):
            self.roots(sent[at : at + setting.trees], setting.kind)


def padded_leaves(trees: Sequence[Tree], leaves: int) -> dict[str, Array]:
    """As `whole` takes trees of at most so many leaves, where these come first."""
    words = np.zeros((leaves, len(trees)), np.int32)
    children = np.full((leaves - 1, len(trees), 2), 2 * leaves - 1, np.int32)
    for number, tree in enumerate(trees):
        own = tree.leaves
        words[:own, number] = tree.words
        children[: own - 1, number] = tree.children + (leaves - own) * (tree.children >= own)
    last = np.array([leaves + tree.leaves - 2 for tree in trees], np.int32)
    return {"words": words, "children": children, "last": last}


def padded_nodes(trees: Sequence[Tree], leaves: int) -> dict[str, Array]:
    """As `whole` takes trees of at most so many leaves, where these are nodes as others."""
    nodes = 2 * leaves - 1
    words = np.zeros((nodes, len(trees)), np.int32)
    children = np.full((nodes, len(trees), 2), nodes, np.int32)
    for number, tree in enumerate(trees):
        words[: tree.leaves, number] = tree.words
        children[tree.leaves : 2 * tree.leaves - 1, number] = tree.children
    last = np.array([2 * tree.leaves - 2 for tree in trees], np.int32)
    return {"words": words, "children": children, "last": last}
