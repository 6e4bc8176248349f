"""Pipelines over trees: models in numpy, requests, and what recursion says of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from math import inf
from random import Random
from typing import Any

import numpy as np

from app.core.errors import InferenceFailed, InvalidRequest, OutOfMemory
from app.core.events import BatchExecuted
from app.core.inference import Array, InferenceRequest, InferenceResponse, TensorSpec
from app.pipelines.folding import FoldLimits
from app.pipelines.pipeline_model import PipelineModel
from tests.pipelines.pipeline_world import FLOAT32, LIMITS, World

INT32 = np.dtype(np.int32)
WIDTH = 3

STATE = TensorSpec("state", FLOAT32, (None, WIDTH))
WORD = TensorSpec("word", FLOAT32, (None,))

#: What a node's word makes a model do.
REJECTED, FAILING, TOO_LARGE = 666.0, 999.0, 777.0

TREES = b"""
steps:
  leaves: {model: embed, inputs: {token: tokens}}
  nodes:
    model: cell
    inputs: {word: words}
    fold: {children: children, slots: [left, right], start: leaves.state, state: state}
  scores: {model: head, inputs: {state: nodes.root}}
outputs: {scores: scores.scores, root: nodes.root, marks: nodes.mark, states: nodes.state}
"""

#: Each word is a node, and its child is the one before it.
CHAIN = b"""
steps:
  nodes: {model: next, inputs: {word: words}, fold: {slots: [before], state: state}}
outputs: {root: nodes.root, states: nodes.state}
"""

#: Two states, two types of nodes, one of which has one child.
TYPES = b"""
steps:
  nodes:
    inputs: {word: words}
    fold:
      children: children
      types: types
      start: {h: h, c: c}
      operations:
        - model: join
          slots: [{h: left_h, c: left_c}, {h: right_h, c: right_c}]
          state: {h: h, c: c}
        - model: turn
          slots: [{h: x, c: y}]
          state: {h: new_h, c: new_c}
outputs: {h: nodes.root_h, c: nodes.root_c}
"""

#: All children of a node in one input, and nodes that are children of several.
STACKED = b"""
steps:
  nodes: {model: add, fold: {children: children, slots: {count: 4, input: all}, start: start, state: sum, shared: true}}
outputs: {root: nodes.root}
"""


def embed(inputs: Mapping[str, Array]) -> dict[str, Array]:
    token = inputs["token"].astype(np.float32)
    return {"state": np.stack([token, -token, token / 2], 1)}


def cell(inputs: Mapping[str, Array]) -> dict[str, Array]:
    word = inputs["word"]
    if (word == REJECTED).any():
        raise InvalidRequest("the word is rejected")
    if (word == FAILING).any():
        raise InferenceFailed("the cell failed")
    if (word == TOO_LARGE).any() and len(word) > 1:
        raise OutOfMemory("no memory")
    state = np.tanh(word[:, None] / 10 + inputs["left"] - 0.5 * inputs["right"]).astype(np.float32)
    return {"state": state, "mark": word * 2}


def head(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {"scores": inputs["state"].sum(1)}


def following(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {"state": (inputs["before"] / 2 + inputs["word"][:, None]).astype(np.float32)}


def join(inputs: Mapping[str, Array]) -> dict[str, Array]:
    h = inputs["left_h"] - inputs["right_h"] + inputs["word"][:, None]
    return {"h": h, "c": inputs["left_c"] + 2 * inputs["right_c"]}


def turn(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {"new_h": -inputs["x"], "new_c": inputs["y"] + inputs["word"]}


def add(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {"sum": inputs["all"].sum(1) + 1}


class Trees(World):
    """The models of the pipelines above."""

    def __init__(self, *, limits: FoldLimits = LIMITS, **options: Any) -> None:
        super().__init__(limits=limits, **options)
        scalar, h = TensorSpec("", FLOAT32, (None,)), TensorSpec("h", FLOAT32, (None, WIDTH))
        self.add("embed", 1, embed, {"state": STATE}, {"token": TensorSpec("token", INT32, (None,))})
        self.add("cell", 1, cell, {"state": STATE, "mark": scalar}, {"word": WORD, "left": STATE, "right": STATE})
        self.add("head", 1, head, {"scores": scalar}, {"state": STATE})
        self.add("next", 1, following, {"state": STATE}, {"word": WORD, "before": STATE})
        self.add(
            "join", 1, join, {"h": h, "c": scalar},
            {"word": WORD, "left_h": h, "left_c": scalar, "right_h": h, "right_c": scalar},
        )  # fmt: skip
        self.add("turn", 1, turn, {"new_h": h, "new_c": scalar}, {"word": WORD, "x": h, "y": scalar})
        self.add("add", 1, add, {"sum": STATE}, {"all": TensorSpec("all", FLOAT32, (None, None, WIDTH))})

    def send(
        self, model: PipelineModel, inputs: Mapping[str, Array], timeout_s: float = inf, priority: int = 0
    ) -> asyncio.Task[InferenceResponse]:
        request = InferenceRequest(dict(inputs), deadline_s=self.loop.time() + timeout_s, priority=priority)
        return asyncio.create_task(model.infer(request))

    def calls(self, name: str) -> list[int]:
        """The rows of each call that answered, without padding."""
        return [each.rows for each in self.events if isinstance(each, BatchExecuted) and each.model == name]


def tree(leaves: int, seed: int = 0) -> dict[str, Array]:
    """A request of one random binary tree: neighbours are joined."""
    random = Random(seed)  # noqa: S311 - the same trees each time
    parts, children = list(range(leaves)), []
    for node in range(leaves, 2 * leaves - 1):
        at = random.randrange(len(parts) - 1)
        children.append(parts[at : at + 2])
        parts[at : at + 2] = [node]
    return {
        "tokens": np.array([random.randrange(100) for _ in range(leaves)], np.int32),
        "words": np.array([random.randrange(10) for _ in children], np.float32),
        "children": np.array(children, np.int32).reshape(-1, 2),
    }


def forest(*trees: Mapping[str, Array]) -> dict[str, Array]:
    """Trees in one request."""
    starts = sum(len(each["tokens"]) for each in trees)
    children, leaf, inner = [], 0, starts
    for each in trees:
        own, leaves = each["children"], len(each["tokens"])
        children.append(np.where(own < leaves, own + leaf, own - leaves + inner))
        leaf, inner = leaf + leaves, inner + len(own)
    return {
        "tokens": np.concatenate([each["tokens"] for each in trees]),
        "words": np.concatenate([each["words"] for each in trees]),
        "children": np.concatenate(children).astype(np.int32),
    }


def by_recursion(request: Mapping[str, Array]) -> dict[str, Array]:
    """What TREES should answer: one node at a time."""
    leaves, children, words = len(request["tokens"]), request["children"].tolist(), request["words"]
    start, known = embed({"token": request["tokens"]})["state"], dict[int, dict[str, Array]]()

    def state(node: int) -> Array:
        if node < 0:
            return np.zeros((1, WIDTH), np.float32)
        return start[node : node + 1] if node < leaves else computed(node)["state"]

    def computed(node: int) -> dict[str, Array]:
        if node not in known:
            left, right = children[node - leaves]
            word = words[node - leaves : node - leaves + 1]
            known[node] = cell({"word": word, "left": state(left), "right": state(right)})
        return known[node]

    nodes = [computed(leaves + inner) for inner in range(len(children))]
    used = {child for pair in children for child in pair}
    roots = [state(node) for node in range(leaves + len(children)) if node not in used]
    root = _together(roots, (0, WIDTH))
    return {
        "root": root,
        "scores": head({"state": root})["scores"],
        "states": _together([each["state"] for each in nodes], (0, WIDTH)),
        "marks": _together([each["mark"] for each in nodes], (0,)),
    }


def _together(arrays: Sequence[Array], empty: tuple[int, ...]) -> Array:
    return np.concatenate(arrays) if arrays else np.zeros(empty, np.float32)
