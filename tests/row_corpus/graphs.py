"""Nodes and edges, queries and documents, boxes and scores: inputs whose first dimensions may or must be equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests.row_corpus.row_case import Draw, Inputs, RowCase, halves, save, spec


def _graph(rng: np.random.Generator, rows: int) -> Inputs:
    """So many nodes, and one to three edges between them."""
    edges = rng.integers(0, rows, (int(rng.integers(1, 4)), 2)).astype(np.int32)
    return {"nodes": halves(rng, rows, 2), "edges": edges}


def _paired(rng: np.random.Generator, rows: int) -> Inputs:
    """Edges that are rows of their own: both ends come with them."""
    return {"source": halves(rng, rows, 2), "target": halves(rng, rows, 2)}


def _retrieval(rng: np.random.Generator, rows: int) -> Inputs:
    return {"queries": halves(rng, rows, 3), "documents": halves(rng, int(rng.integers(1, 4)), 3)}


def _boxes(rng: np.random.Generator, rows: int) -> Inputs:
    corner = rng.random((rows, 2)).astype(np.float32)
    return {
        "boxes": np.concatenate([corner, corner + 0.5], 1).astype(np.float32),
        "scores": rng.permutation(rows).astype(np.float32) + 1.0,
    }


_NODES = [spec("nodes", None, 2), spec("edges", None, 2, dtype=tf.int32)]
_PAIRED = [spec("source", None, 2), spec("target", None, 2)]
_RETRIEVAL = [spec("queries", None, 3), spec("documents", None, 3)]
_BOXES = [spec("boxes", None, 4), spec("scores", None)]


def _messages(nodes: Any, edges: Any) -> Any:
    sent = tf.gather(nodes, edges[:, 0])
    return {"y": nodes + tf.math.unsorted_segment_sum(sent, edges[:, 1], tf.shape(nodes)[0])}


def _degrees(nodes: Any, edges: Any) -> Any:
    ones = tf.ones_like(edges[:, 0])
    return {
        "y": nodes[:, 0]
        + tf.cast(tf.tensor_scatter_nd_add(nodes[:, 0] * 0.0, edges[:, 1:], tf.cast(ones, tf.float32)), tf.float32)
    }


def _pooled(nodes: Any, edges: Any) -> Any:
    """Three rounds, then each node and the whole graph."""
    for _ in range(3):
        nodes = _messages(nodes / 2.0, edges)["y"]
    return {"y": nodes - tf.reduce_max(nodes, 0)}


def _scores(queries: Any, documents: Any) -> Any:
    return {"y": tf.matmul(queries, documents, transpose_b=True)}


def _kept(boxes: Any, scores: Any) -> Any:
    """Whether a box is kept beside the others."""
    kept = tf.image.non_max_suppression(boxes, scores, 100, 0.3)
    return {"y": tf.scatter_nd(kept[:, None], tf.ones_like(kept), tf.shape(scores))}


def _case(
    name: str, call: Callable[..., Any], specs: Sequence[Any], draw: Draw, why: str, *, mixes: bool = True
) -> RowCase:
    def make(path: Path) -> None:
        save(path, call, specs)

    return RowCase(name=name, make=make, draw=draw, mixes=mixes, why=why)


CASES: Sequence[RowCase] = (
    _case("graph_messages", _messages, _NODES, _graph, "nodes hear their neighbours; edges hold numbers of nodes"),
    _case("graph_degrees", _degrees, _NODES, _graph, "edges hold numbers of nodes"),
    _case("graph_pooled", _pooled, _NODES, _graph, "all nodes of a graph are pooled"),
    _case(
        "edges_of_their_own",
        lambda source, target: {"y": tf.reduce_sum(source * target, 1)},
        _PAIRED,
        _paired,
        "an edge brings both its nodes",
        mixes=False,
    ),
    _case(
        "distances_of_pairs",
        lambda source, target: {"y": tf.sqrt(tf.reduce_sum((source - target) ** 2, 1))},
        _PAIRED,
        _paired,
        "a distance for each pair",
        mixes=False,
    ),
    _case("retrieval", _scores, _RETRIEVAL, _retrieval, "an answer has a column for each document"),
    _case(
        "best_document",
        lambda queries, documents: {"y": tf.argmax(_scores(queries, documents)["y"], 1)},
        _RETRIEVAL,
        _retrieval,
        "the best document of the request",
    ),
    _case("boxes_kept", _kept, _BOXES, _boxes, "a box suppresses its neighbours"),
    _case(
        "boxes_weighed",
        lambda boxes, scores: {"y": boxes * scores[:, None]},
        _BOXES,
        _boxes,
        "a box and its score",
        mixes=False,
    ),
)
