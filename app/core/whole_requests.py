"""The reason why requests of a signature never share calls, whatever is proven: its shapes, or its graph."""

from __future__ import annotations

from collections.abc import Mapping

from app.core.batching_explanation import NO_ROWS
from app.core.inference import ModelSignature, TensorSpec, format_shape, has_rows

#: The most tensors that a reason names; a signature may have hundreds. Chosen.
_MOST_NAMED = 3


def why_whole(signature: ModelSignature) -> str:
    """The reason why each request of a signature is a separate call; empty if requests may share calls."""
    if signature.shares_calls:
        return ""
    if not signature.inputs:
        return "it has no inputs"
    # 1. Outputs, or all inputs, are no rows: no proof by the graph would help.
    inputs = _without_rows("input", signature.inputs, _parts_of_ragged_and_sparse(signature))
    outputs = _without_rows("output", signature.outputs)
    none_is_row = len(inputs) == len(signature.inputs)
    if outputs or none_is_row:
        return _listed([*(inputs if none_is_row else ()), *outputs])
    # 2. Some inputs are no rows, and rows are not proven to stay apart beside them.
    graph = _not_proven(signature)
    if inputs:
        beside = f", and its graph does not prove that rows stay apart beside it: {graph}" if graph else ""
        return _listed(inputs) + beside
    # 3. Rows of several kinds, such as nodes and edges.
    return "its inputs have rows of several kinds, so that a request is a whole" + (f": {graph}" if graph else "")


def _without_rows(kind: str, specs: Mapping[str, TensorSpec], but: frozenset[str] = frozenset()) -> list[str]:
    return [
        f"{kind} {name!r} has the shape {format_shape(spec.shape)}"
        for name, spec in specs.items()
        if name not in but
        # The first dimension of an output of unknown rank is checked in each call.
        and not (has_rows(spec.shape) or (spec.shape is None and kind == "output"))
    ]


def _parts_of_ragged_and_sparse(signature: ModelSignature) -> frozenset[str]:
    return frozenset(name for parts in signature.sparse for name in parts) | frozenset(
        name for splits in signature.ragged.values() for name in splits
    )


def _listed(found: list[str]) -> str:
    more = f", {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return f"{', '.join(found[:_MOST_NAMED])}{more}, {NO_ROWS}"


def _not_proven(signature: ModelSignature) -> str:
    """The graph's reason for the first output that it does not prove; empty if it proves all, or was not read."""
    read = signature.graph_rows.outputs if signature.graph_rows is not None else {}
    return next((f"output {name!r}: {found.reason}" for name, found in read.items() if not found.proven), "")
