"""The facts of a graph that a signature has: what its calls may write, draw and read, and its fingerprint."""

from __future__ import annotations

from typing import Any, NamedTuple

from app.runtimes.tensorflow.execution.graph_fingerprint import graph_fingerprint
from app.runtimes.tensorflow.execution.operations import (
    drawing_operations,
    has_loops,
    reads_files,
    takes_one_rank,
    writing_operations,
)


class GraphFacts(NamedTuple):
    """The fields of ModelSignature, which explains them, that follow from the graph alone."""

    writes: tuple[str, ...]
    draws: tuple[str, ...]
    loops: bool
    reads_files: bool
    one_rank: bool
    fingerprint: str


def facts_of(graph: Any) -> GraphFacts:
    """The facts of a GraphDef with the functions that it calls."""
    return GraphFacts(
        tuple(writing_operations(graph)),
        tuple(drawing_operations(graph)),
        has_loops(graph),
        reads_files(graph),
        takes_one_rank(graph),
        graph_fingerprint(graph),
    )
