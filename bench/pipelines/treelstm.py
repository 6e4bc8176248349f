"""A binary TreeLSTM for 128 numbers: as the models and pipelines that Ferry serves, as requests, and in numpy.

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
from bench.pipelines.served import put_pipeline, save

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

#: Leaves by a model of their own, and something is computed of the root.
SENTENCE = """
steps:
  leaves: {model: leaf, inputs: {word: words}}
  nodes:
    model: inner
    fold:
      children: children
      slots: [{h: left_h, c: left_c}, {h: right_h, c: right_c}]
      start: {h: leaves.h, c: leaves.c}
      state: {h: h, c: c}
  scores: {model: head, inputs: {h: nodes.root_h}}
outputs: {scores: scores.scores, root: nodes.root_h}
"""


def _weights() -> dict[str, Array]:
    random = np.random.default_rng(1)
    shapes = {"words": (WORDS, WIDTH), "x": (WIDTH, 5 * WIDTH), "h": (2 * WIDTH, 5 * WIDTH), "head": (WIDTH, 5)}
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


def leaf_state(gates: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """h and c: [..., WIDTH]."""
    i, _, _, o, u = tf.split(gates, 5, axis=-1)
    c = tf.sigmoid(i) * tf.tanh(u)
    return tf.sigmoid(o) * tf.tanh(c), c


def state(gates: tf.Tensor, left_c: tf.Tensor, right_c: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    i, left, right, o, u = tf.split(gates, 5, axis=1)
    c = tf.sigmoid(i) * tf.tanh(u) + tf.sigmoid(left) * left_c + tf.sigmoid(right) * right_c
    return tf.sigmoid(o) * tf.tanh(c), c


def save_models(folder: Path) -> None:
    """The models, and the pipelines tree and sentence."""

    def cell(word: tf.Tensor, left_h: tf.Tensor, left_c: tf.Tensor, right_h: tf.Tensor, right_c: tf.Tensor) -> Outputs:
        return _named(state(gates_of_words(word) + gates_of_children(left_h, right_h), left_c, right_c))

    def inner(left_h: tf.Tensor, left_c: tf.Tensor, right_h: tf.Tensor, right_c: tf.Tensor) -> Outputs:
        return _named(state(gates_of_children(left_h, right_h), left_c, right_c))

    word, row = tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, WIDTH], tf.float32)
    states = dict.fromkeys(("left_h", "left_c", "right_h", "right_c"), row)
    save(folder, "cell", cell, word=word, **states)
    save(folder, "inner", inner, **states)
    save(folder, "leaf", lambda word: _named(leaf_state(gates_of_words(word))), word=word)
    save(folder, "head", lambda h: {"scores": tf.matmul(h, W["head"])}, h=row)
    put_pipeline(folder, "tree", TREE)
    put_pipeline(folder, "sentence", SENTENCE)


Outputs = dict[str, tf.Tensor]


def _named(own: tuple[tf.Tensor, tf.Tensor]) -> Outputs:
    return {"h": own[0], "c": own[1]}


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
    def as_sentence(self) -> dict[str, Array]:
        """The inputs of `sentence`."""
        return {"words": self.words, "children": self.children}

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


def trees(number: int, kind: str) -> Sequence[Tree]:
    """`small`: 5 to 40 leaves; `equal`: 22; `mixed`: 5 to 20, and every tenth at random 100 to 200."""
    random = np.random.default_rng(7)
    bounds = {"small": (5, 40), "equal": (22, 22), "mixed": (5, 20)}[kind]
    large = random.random(number) < (0.1 if kind == "mixed" else 0)
    return [random_tree(int(random.integers(*((100, 200) if own else bounds), endpoint=True)), random) for own in large]


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
