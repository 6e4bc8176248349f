"""Frozen graphs: a `.pb` with a GraphDef whose weights are constants, or a MetaGraphDef of such."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.importing.formats import read as read_format
from app.importing.graphs.ends import Ends, GraphEnds, named
from app.importing.graphs.graph_file import cleaned, read_graph
from app.importing.graphs.graph_source import (
    GraphSession,
    Part,
    checked_part,
    endpoint_of,
    import_into_graph,
    new_session,
    specs_of,
    tensor_names,
)
from app.importing.order import CannotImport, ImportOrder
from app.importing.source import Source
from app.runtimes.tensorflow.graph_nodes import names
from app.runtimes.tensorflow.graph_part import part_of

_VARIABLES = names("AutoReloadVariable TemporaryVariable VarHandleOp Variable VariableV2")


def read(path: Path, order: ImportOrder) -> Source:
    """The model of a file with a graph. Raises CannotImport."""
    if path.name in {"saved_model.pb", "saved_model.pbtxt"}:
        return read_format("saved_model", path.parent, order)
    meta_graph = read_graph(path)
    graph = cleaned(meta_graph.graph_def)
    producer = meta_graph.meta_info_def.stripped_op_list if meta_graph.meta_info_def.stripped_op_list.op else None
    ends = found_ends(graph, order, producer)
    part = checked_part(graph, ends)
    if variables := [node.name for node in part.node if node.op in _VARIABLES]:
        raise CannotImport(
            f"{path.name} is no frozen graph: the weights of its {len(variables)} variables, such as {variables[0]!r}, "
            "are in another file; give the folder that has both (a checkpoint or a SavedModel)"
        )
    imported = import_into_graph(part_of(graph, ends.outputs.values()), producer)
    made = endpoint_of(Part(part, ends, specs_of(imported, ends), producer), GraphSession(new_session(imported), ends))
    return Source("frozen graph (TensorFlow)", [made.endpoint], notes=made.notes)


def found_ends(graph: Any, order: ImportOrder, producer: Any = None) -> Ends:
    """The ends of a graph: those that the caller names, else those that are found. Raises CannotImport."""
    search = GraphEnds(graph)
    inputs = search.asked(order.inputs, "--inputs")
    outputs = search.asked(order.outputs, "--outputs") or _results(graph, search.output_nodes(), inputs, producer)
    return search.of(outputs, inputs)


def _results(graph: Any, nodes: Sequence[str], inputs: Sequence[str], producer: Any) -> list[str]:
    checked_part(graph, Ends(named(inputs), named([f"{node}:0" for node in nodes])))
    tensors = tensor_names(import_into_graph(part_of(graph, nodes), producer), nodes)
    if not tensors:
        raise CannotImport(f"its ends {', '.join(nodes)} give no arrays; --outputs NAME,NAME names other tensors")
    return list(named(tensors).values())
