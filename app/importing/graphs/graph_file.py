"""A file of a graph: a GraphDef, a MetaGraphDef or a SavedModel, binary or text, told apart by what it holds.

Bounds: a file, its number of nodes, and what its constants declare. A few bytes may declare a constant of terabytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from app.importing.order import CannotImport
from app.runtimes.tensorflow.graph_nodes import bodies_of, sizes_of
from app.runtimes.tensorflow.private_api import SavedModelProto

#: The most bytes of a protobuf, by its format's own rule; of a text, which takes far longer to parse.
_MOST_BYTES, _MOST_TEXT_BYTES = (1 << 31) - 1, 16 << 20

#: The most nodes. Chosen: ten times those of the largest graphs in use; more would take minutes.
MOST_NODES = 250_000

#: The most bytes that constants may declare beyond those that are there. Chosen: far above zeros and masks in use.
_MOST_DECLARED_BYTES = 1 << 30

_GraphDef, _MetaGraphDef = tf.compat.v1.GraphDef, tf.compat.v1.MetaGraphDef

_NOTHING = tf.compat.v1.AttrValue()

#: Attributes that only describe, or name devices and nodes that may be gone. Old ones are often broken.
_DESCRIPTIVE = ("_output_shapes", "_class")


def read_graph(path: Path) -> Any:
    """The graph in a file as a MetaGraphDef; of a GraphDef only `graph_def` is set.

    Raises CannotImport: it holds no graph, or one out of bounds.
    """
    size = path.stat().st_size
    if size > _MOST_BYTES:
        raise CannotImport(f"{path.name} is {size:,} bytes; a graph of TensorFlow is at most {_MOST_BYTES:,}")
    data = path.read_bytes()
    meta_graph = _binary(data) or _text(data)
    if meta_graph is None:
        raise CannotImport(
            f"{path.name}, of {size:,} bytes, is cut short or no graph: expected a GraphDef, MetaGraphDef or SavedModel"
        )
    check_bounds(meta_graph.graph_def, path.name)
    return meta_graph


def _binary(data: bytes) -> Any | None:
    """The graph in the bytes of a protobuf. Each of the three kinds parses as each other: one holds known nodes."""
    for read in (_of_graph, _of_meta_graph, _of_saved_model):
        try:
            meta_graph = read(data)
        except DecodeError:
            continue
        if meta_graph is not None and _is_graph(meta_graph.graph_def):
            return meta_graph
    return None


def _of_graph(data: bytes) -> Any:
    return _MetaGraphDef(graph_def=_GraphDef.FromString(data))


def _of_meta_graph(data: bytes) -> Any:
    return _MetaGraphDef.FromString(data)


def _of_saved_model(data: bytes) -> Any | None:
    graphs = SavedModelProto.FromString(data).meta_graphs
    served = [each for each in graphs if "serve" in each.meta_info_def.tags]
    return next(iter([*served, *graphs]), None)


def _text(data: bytes) -> Any | None:
    if len(data) > _MOST_TEXT_BYTES or b"node" not in data or b"\0" in data:
        return None
    for kind in (_GraphDef, _MetaGraphDef):
        try:
            found = text_format.Parse(data.decode(), kind())
        except (text_format.ParseError, UnicodeDecodeError, RecursionError):
            continue
        return _MetaGraphDef(graph_def=found) if kind is _GraphDef else found
    return None


def _is_graph(graph: Any) -> bool:
    """Whether its nodes have names and operations, as words."""
    return bool(graph.node) and all(node.name and node.op and node.op[0].isalpha() for node in graph.node)


# --- bounds ---


def check_bounds(graph: Any, name: str) -> None:
    """Raises CannotImport: a GraphDef has too many nodes, or its constants declare more than a file of its size can."""
    count = sum(map(len, bodies_of(graph)))
    if count > MOST_NODES:
        raise CannotImport(f"{name} has {count:,} nodes; expected at most {MOST_NODES:,}")
    declared, held = 0, graph.ByteSize()
    for node in _constants(graph):
        tensor = attribute(node, "value").tensor
        declared += _declared_bytes(tensor)
        if declared > _MOST_DECLARED_BYTES + held:
            raise CannotImport(
                f"{name}: its constants up to {node.name[:128]!r} declare {declared:,} bytes; the file holds only "
                f"{held:,}"
            )


def _constants(graph: Any) -> Iterator[Any]:
    for body in bodies_of(graph):
        yield from (node for node in body if node.op == "Const")


def _declared_bytes(tensor: Any) -> int:
    sizes = sizes_of(tensor.tensor_shape) or ()
    try:
        width = tf.as_dtype(tensor.dtype).size or 1
    except TypeError:
        width = 1
    return prod([size or 0 for size in sizes]) * width


def attribute(node: Any, name: str) -> Any:
    """The AttrValue of a node, or an empty one: to ask for one that is missing would add it to the node."""
    return node.attr.get(name, _NOTHING)


def cleaned(graph: Any) -> Any:
    """A copy of a GraphDef without devices, and without attributes that only describe."""
    copy = _GraphDef()
    copy.CopyFrom(graph)
    for body in bodies_of(copy):
        for node in body:
            node.device = ""
            for name in _DESCRIPTIVE:
                if name in node.attr:
                    del node.attr[name]
    return copy
