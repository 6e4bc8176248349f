"""A binary TreeLSTM for 128 numbers: as the model and the pipeline that Ferry serves, as requests, and in numpy.

The state of a node comes from its word and its two children; leaves have no children, and inner nodes no word (word 0).

K. S. Tai et al.: Improved semantic representations from tree-structured long short-term memory networks, ACL 2015.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import tensorflow as tf

from app.core.inference import Array
from bench.support.served import put_pipeline, save

WIDTH, WORDS = 128, 1000

#: Every node is computed by the cell.
TREE = """
steps:
  nodes:
    model: cell
    inputs: {word: words}
    fold: {children: children, slots: [{h: left_h, c: left_c}, {h: right_h, c: right_c}], state: {h: h, c: c}}
outputs: {root: nodes.root_h}
"""


def _weights() -> dict[str, Array]:
    random = np.random.default_rng(1)
    shapes = {"words": (WORDS, WIDTH), "x": (WIDTH, 5 * WIDTH), "h": (2 * WIDTH, 5 * WIDTH)}
    made = {name: random.normal(0, shape[0] ** -0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    made["words"] *= 10
    made["words"][0] = 0
    return made


W = _weights()


# --- in TensorFlow ---


def gates_of_words(word: tf.Tensor) -> tf.Tensor:
    return tf.matmul(tf.gather(W["words"], word), W["x"])


def gates_of_children(left_h: tf.Tensor, right_h: tf.Tensor) -> tf.Tensor:
    return tf.matmul(tf.concat([left_h, right_h], 1), W["h"])


def state(gates: tf.Tensor, left_c: tf.Tensor, right_c: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    i, left, right, o, u = tf.split(gates, 5, axis=1)
    c = tf.sigmoid(i) * tf.tanh(u) + tf.sigmoid(left) * left_c + tf.sigmoid(right) * right_c
    return tf.sigmoid(o) * tf.tanh(c), c


def save_models(folder: Path) -> None:
    """The cell, and the pipeline `tree`."""

    def cell(
        word: tf.Tensor, left_h: tf.Tensor, left_c: tf.Tensor, right_h: tf.Tensor, right_c: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        h, c = state(gates_of_words(word) + gates_of_children(left_h, right_h), left_c, right_c)
        return {"h": h, "c": c}

    word, row = tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, WIDTH], tf.float32)
    save(folder, "cell", cell, word=word, **dict.fromkeys(("left_h", "left_c", "right_h", "right_c"), row))
    put_pipeline(folder, "tree", TREE)


# --- requests ---


@dataclass(frozen=True)
class Tree:
    """Leaves first, then inner nodes, children before parents.

    words: [leaves]; children: [leaves - 1, 2].
    """

    words: Array
    children: Array

    @property
    def leaves(self) -> int:
        return len(self.words)

    @cached_property
    def as_tree(self) -> dict[str, Array]:
        """The inputs of `tree`: a row for each node."""
        none = np.full((self.leaves, 2), -1, np.int32)
        return {"words": np.pad(self.words, (0, self.leaves - 1)), "children": np.concatenate((none, self.children))}


def random_tree(leaves: int, random: np.random.Generator) -> Tree:
    """Neighbours are joined until one is left."""
    parts, children = list(range(leaves)), []
    for node in range(leaves, 2 * leaves - 1):
        at = int(random.integers(len(parts) - 1))
        children.append(parts[at : at + 2])
        parts[at : at + 2] = [node]
    return Tree(random.integers(1, WORDS, leaves, np.int32), np.array(children, np.int32).reshape(-1, 2))


def trees(number: int) -> Sequence[Tree]:
    """Of 5 to 40 leaves each."""
    random = np.random.default_rng(7)
    return [random_tree(int(random.integers(5, 40, endpoint=True)), random) for _ in range(number)]


# --- in numpy ---


def by_numpy(tree: Tree) -> Array:
    """h of the root, a node at a time: [1, WIDTH]."""
    states = [_state(gates, _NONE, _NONE) for gates in W["words"][tree.words] @ W["x"]]
    for left, right in tree.children.tolist():
        (left_h, left_c), (right_h, right_c) = states[left], states[right]
        states.append(_state(np.concatenate((left_h, right_h)) @ W["h"], left_c, right_c))
    return states[-1][0][None]


_NONE = np.zeros(WIDTH, np.float32)


def _state(gates: Array, left_c: Array, right_c: Array) -> tuple[Array, Array]:
    i, left, right, o, u = np.split(gates, 5)
    c = _sigmoid(i) * np.tanh(u) + _sigmoid(left) * left_c + _sigmoid(right) * right_c
    return _sigmoid(o) * np.tanh(c), c


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))
