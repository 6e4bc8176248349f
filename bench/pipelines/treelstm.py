"""A binary TreeLSTM for 128 numbers: as the models and the pipeline that Ferry serves, as requests, and in numpy.

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

WIDTH, WORDS, CLASSES = 128, 1000, 5

PIPELINE = """
steps:
  leaves: {model: leaf, inputs: {token: tokens}}
  nodes:
    model: cell
    fold:
      children: children
      slots: [{h: left_h, c: left_c}, {h: right_h, c: right_c}]
      start: {h: leaves.h, c: leaves.c}
      state: {h: h, c: c}
  scores: {model: head, inputs: {h: nodes.root_h}}
outputs: {scores: scores.scores}
"""


def _weights() -> dict[str, Array]:
    random = np.random.default_rng(1)
    shapes = {"words": (WORDS, WIDTH), "leaf": (WIDTH, 3 * WIDTH), "cell": (2 * WIDTH, 5 * WIDTH), "head": (WIDTH, CLASSES)}
    return {name: random.normal(0, shape[0] ** -0.5, shape).astype(np.float32) for name, shape in shapes.items()}


W = _weights()


# --- in TensorFlow ---


def leaf(token: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """h and c of leaves: [..., WIDTH]."""
    i, o, u = tf.split(tf.matmul(tf.gather(W["words"] * 10, token), W["leaf"]), 3, axis=-1)
    c = tf.sigmoid(i) * tf.tanh(u)
    return tf.sigmoid(o) * tf.tanh(c), c


def cell(left_h: tf.Tensor, left_c: tf.Tensor, right_h: tf.Tensor, right_c: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    i, left, right, o, u = tf.split(tf.matmul(tf.concat([left_h, right_h], 1), W["cell"]), 5, axis=1)
    c = tf.sigmoid(i) * tf.tanh(u) + tf.sigmoid(left) * left_c + tf.sigmoid(right) * right_c
    return tf.sigmoid(o) * tf.tanh(c), c


def head(h: tf.Tensor) -> tf.Tensor:
    return tf.matmul(h, W["head"])


def save_models(folder: Path) -> None:
    """The models leaf, cell and head, and the pipeline tree."""
    state = tf.TensorSpec([None, WIDTH], tf.float32)
    states = dict.fromkeys(("left_h", "left_c", "right_h", "right_c"), state)
    save(folder, "leaf", lambda token: _named(leaf(token)), token=tf.TensorSpec([None], tf.int32))
    save(
        folder,
        "cell",
        lambda left_h, left_c, right_h, right_c: _named(cell(left_h, left_c, right_h, right_c)),
        **states,
    )
    save(folder, "head", lambda h: {"scores": head(h)}, h=state)
    put_pipeline(folder, "tree", PIPELINE)


def _named(state: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
    return {"h": state[0], "c": state[1]}


# --- requests ---


@dataclass(frozen=True)
class Tree:
    """tokens: [leaves]; children: [leaves - 1, 2], children before parents: leaves first, then inner nodes."""

    tokens: Array
    children: Array

    @property
    def leaves(self) -> int:
        return len(self.tokens)

    @cached_property
    def inputs(self) -> dict[str, Array]:
        """Those of the pipeline."""
        return {"tokens": self.tokens, "children": self.children}


def random_tree(leaves: int, random: np.random.Generator) -> Tree:
    """Neighbours are joined until one is left."""
    parts, children = list(range(leaves)), []
    for node in range(leaves, 2 * leaves - 1):
        at = int(random.integers(len(parts) - 1))
        children.append(parts[at : at + 2])
        parts[at : at + 2] = [node]
    return Tree(random.integers(WORDS, size=leaves, dtype=np.int32), np.array(children, np.int32).reshape(-1, 2))


def trees(number: int, kind: str) -> Sequence[Tree]:
    """`small`: 5 to 40 leaves; `equal`: 22; `mixed`: 5 to 20, and every tenth at random 100 to 200."""
    random = np.random.default_rng(7)
    bounds = {"small": (5, 40), "equal": (22, 22), "mixed": (5, 20)}[kind]
    large = random.random(number) < (0.1 if kind == "mixed" else 0)
    return [random_tree(int(random.integers(*((100, 200) if own else bounds), endpoint=True)), random) for own in large]


# --- in numpy ---


def by_numpy(tree: Tree) -> Array:
    """The scores, a node at a time: [1, CLASSES]."""
    i, o, u = np.split(10 * W["words"][tree.tokens] @ W["leaf"], 3, axis=1)
    c = _sigmoid(i) * np.tanh(u)
    states = list(zip(_sigmoid(o) * np.tanh(c), c, strict=True))
    for left, right in tree.children.tolist():
        (left_h, left_c), (right_h, right_c) = states[left], states[right]
        i, of_left, of_right, o, u = np.split(np.concatenate([left_h, right_h]) @ W["cell"], 5)
        c = _sigmoid(i) * np.tanh(u) + _sigmoid(of_left) * left_c + _sigmoid(of_right) * right_c
        states.append((_sigmoid(o) * np.tanh(c), c))
    scores: Array = (states[-1][0] @ W["head"])[None]
    return scores


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))
