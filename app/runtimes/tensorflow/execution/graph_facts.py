"""The facts of a graph that a signature has: the writes, random numbers and reads of its calls, and its fingerprint."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from app.core.inference import ModelSignature
from app.runtimes.tensorflow.execution.graph_fingerprint import graph_fingerprint
from app.runtimes.tensorflow.execution.operations import (
    drawing_operations,
    has_loops,
    reads_files,
    takes_one_rank,
    writing_operations,
)


def with_facts(signature: ModelSignature, graph: Any) -> ModelSignature:
    """The signature with the facts of its GraphDef and of the functions that this calls."""
    return replace(
        signature,
        writes=tuple(writing_operations(graph)),
        draws=tuple(drawing_operations(graph)),
        loops=has_loops(graph),
        reads_files=reads_files(graph),
        one_rank=takes_one_rank(graph),
        fingerprint=graph_fingerprint(graph),
    )
