"""Checkpoints of TensorFlow 1: a graph (`X.meta`), and the values of its variables (`X.index` and `X.data-...`; before
TensorFlow 1.0 one file `X`). Training is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import prod
from pathlib import Path, PureWindowsPath
from typing import Any

import tensorflow as tf

from app.core.inference import DEFAULT_SIGNATURE
from app.importing.formats.frozen_graph import found_ends
from app.importing.formats.keras_parts.content import content_of
from app.importing.formats.refused import pickle_refused
from app.importing.graphs.ends import Ends, ends_of_signature
from app.importing.graphs.graph_file import attribute, cleaned, read_graph
from app.importing.graphs.graph_source import (
    GraphEndpoint,
    GraphSession,
    Part,
    check_meta_graph,
    checked_part,
    endpoint_of,
    import_into_graph,
    new_session,
    specs_of,
    with_placeholders,
)
from app.importing.order import CannotImport, ImportOrder
from app.importing.source import Source
from app.runtimes.tensorflow import private_api
from app.runtimes.tensorflow.error_mapping import first_meaningful_line
from app.runtimes.tensorflow.graph_nodes import names, node_of
from app.runtimes.tensorflow.graph_part import part_of
from app.runtimes.tensorflow.saved_model.files import CutShort, read_index

tf1 = tf.compat.v1

_VARIABLES = names("AutoReloadVariable VarHandleOp Variable VariableV2")

#: Endings of the files of a checkpoint.
_ENDING = re.compile(r"\.(meta|index|data-\d+-of-\d+)$")

#: The most bytes of variables: constants of a graph share the bound of protobuf, with the graph.
_MOST_BYTES = 1_900_000_000


def read(path: Path, order: ImportOrder) -> Source:
    """The model of a checkpoint: its folder, one of its files, or their common beginning. Raises CannotImport."""
    prefix = _prefix(path)
    meta_graph = _meta_graph(prefix)
    graph = cleaned(meta_graph.graph_def)
    producer = meta_graph.meta_info_def.stripped_op_list if meta_graph.meta_info_def.stripped_op_list.op else None

    # 1. The signatures, and what runs for them; nothing has run before the check.
    signatures = _signatures(meta_graph, graph, order, producer)
    parts = {name: checked_part(graph, ends) for name, ends in signatures.items()}
    restoring = _restoring(meta_graph, graph)

    # 2. The source: a session with the variables restored.
    outputs = [tensor for ends in signatures.values() for tensor in ends.outputs.values()]
    imported = import_into_graph(_with_reads(part_of(graph, [*outputs, *restoring])), producer)
    session = new_session(imported)
    with private_api.quiet():
        _restore(session, prefix, meta_graph.saver_def if restoring else None, parts.values())

    # 3. Its endpoints.
    weights: dict[str, Any] = {}
    made = [
        _endpoint(Part(parts[name], ends, specs_of(imported, ends), producer), session, name, weights)
        for name, ends in signatures.items()
    ]
    return Source(
        "TensorFlow 1 checkpoint",
        [each.endpoint for each in made],
        kept=list(weights.values()),
        notes=[*_chosen(path, prefix), *[note for each in made for note in each.notes]],
    )


# --- files ---


def _prefix(path: Path) -> str:
    """The common beginning of the paths of a checkpoint's files. Raises CannotImport."""
    if path.name == "checkpoint":
        path = path.parent
    if not path.is_dir():
        return _ENDING.sub("", str(path))
    named = path / "checkpoint"
    text = named.read_text(errors="replace") if named.is_file() else ""
    if found := re.search(r'^model_checkpoint_path:\s*"(.*)"', text, re.MULTILINE):
        # Often the absolute path on the machine of the training.
        prefix = str(path / PureWindowsPath(found[1]).name)  # which knows both slashes
        if any(Path(prefix + ending).exists() for ending in (".index", ".meta")):
            return prefix
    graphs = sorted(path.glob("*.meta"), key=lambda file: (file.stat().st_mtime, _step(file)))
    if graphs:
        return str(graphs[-1]).removesuffix(".meta")
    raise _no_graph(path.name)


def _chosen(path: Path, prefix: str) -> list[str]:
    """The remark on which of several checkpoints was taken."""
    several = path.is_dir() and len(list(path.glob("*.meta"))) > 1
    return [f"of several checkpoints it is {Path(prefix).name}"] if several else []


def _step(file: Path) -> int:
    found = re.findall(r"\d+", file.name)
    return int(found[-1]) if found else -1


def _no_graph(name: str) -> CannotImport:
    return CannotImport(
        f"{name} holds weights only, no graph (no .meta file): where the code of the model is, restore the weights and "
        "save the model by tf.saved_model.save or model.export"
    )


def _meta_graph(prefix: str) -> Any:
    file = Path(f"{prefix}.meta")
    if not file.is_file():
        given = Path(prefix)
        if given.is_file() and content_of(given) == "pickle":
            raise pickle_refused(given)
        raise _no_graph(given.name)
    index = Path(f"{prefix}.index")
    if index.is_file():
        _check_shards(prefix, index)
    elif not Path(prefix).is_file():
        raise CannotImport(f"{file.name} is a graph without its weights: {index.name} is not there")
    return read_graph(file)


def _check_shards(prefix: str, index: Path) -> None:
    """Raises CannotImport: the file of an index, or one that it names, is cut short."""
    try:
        shards = read_index(index.read_bytes())
    except CutShort:
        raise CannotImport(f"{index.name}, of {index.stat().st_size:,} bytes, is cut short or no index") from None
    for number in range(shards.total):
        file = Path(f"{prefix}.data-{number:05}-of-{shards.total:05}")
        if not file.is_file():
            raise CannotImport(f"{file.name} is not there, which {index.name} names")
        expected = shards.sizes.get(number, 0)
        if file.stat().st_size < expected:
            raise CannotImport(f"{file.name} is {file.stat().st_size:,} bytes, its index says {expected:,}")


# --- the graph ---


def _signatures(meta_graph: Any, graph: Any, order: ImportOrder, producer: Any) -> dict[str, Ends]:
    """The ends by the name of the signature: those that the graph has, else one that is found."""
    if order.inputs or order.outputs or not meta_graph.signature_def:
        return {DEFAULT_SIGNATURE: found_ends(graph, order, producer)}
    found = {
        name: ends_of_signature(definition)
        for name, definition in sorted(meta_graph.signature_def.items())
        if not name.startswith("__")
    }
    if DEFAULT_SIGNATURE not in found:
        found[DEFAULT_SIGNATURE] = found.pop(next(iter(found)))
    return found


def _restoring(meta_graph: Any, graph: Any) -> list[str]:
    """The node that restores the variables; none if the graph has none. Raises CannotImport: it reaches outside."""
    saver = meta_graph.saver_def
    if not any(node.name == saver.restore_op_name for node in graph.node):
        return []
    part = part_of(graph, [saver.restore_op_name])
    check_meta_graph(tf1.MetaGraphDef(graph_def=part, saver_def=saver))
    return [saver.restore_op_name]


def _with_reads(graph: Any) -> Any:
    """The graph with the nodes by which TensorFlow reads resource variables to make constants of them."""
    known = {node.name for node in graph.node}
    for variable in [node for node in graph.node if node.op == "VarHandleOp"]:
        if (name := f"{variable.name}/Read/ReadVariableOp") not in known:
            read = graph.node.add(name=name, op="ReadVariableOp", input=[variable.name])
            read.attr["dtype"].CopyFrom(attribute(variable, "dtype"))
    return graph


def _restore(session: Any, prefix: str, saver: Any, parts: Iterable[Any]) -> None:
    """Sets the variables of a session. Raises CannotImport: the files do not have them."""
    try:
        if saver is not None:
            session.run(
                session.graph.get_operation_by_name(saver.restore_op_name), {saver.filename_tensor_name: prefix}
            )
        else:
            _assign(session, prefix, [node for part in parts for node in part.node if node.op in _VARIABLES])
    except tf.errors.OpError as error:
        raise CannotImport(f"the weights do not fit the graph: {first_meaningful_line(error)}") from None


def _assign(session: Any, prefix: str, variables: Iterable[Any]) -> None:
    """Sets variables by their names."""
    weights = tf.train.load_checkpoint(prefix)
    with session.graph.as_default():
        for name in dict.fromkeys(node.name for node in variables):
            if not weights.has_tensor(name):
                raise CannotImport(f"the checkpoint has no values of variable {name!r}")
            handle, value = session.graph.get_tensor_by_name(f"{name}:0"), weights.get_tensor(name)
            place = tf1.placeholder(value.dtype, value.shape)
            if handle.dtype == tf.resource:
                assign = tf.raw_ops.AssignVariableOp(resource=handle, value=place)
            else:
                assign = tf.raw_ops.Assign(ref=handle, value=place)
            session.run(assign, {place: value})


def _endpoint(part: Part, session: Any, name: str, weights: dict[str, Any]) -> GraphEndpoint:
    """The endpoint of a part of the graph, with variables of TensorFlow 2.

    Args:
        weights: those that were made, by tensor; it gets those of this part.
    """
    closed, ends = with_placeholders(part.graph, part.ends, session.graph)
    variables = {node.name for node in closed.node if node.op in _VARIABLES}
    frozen = part_of(_frozen(closed, ends, session), ends.outputs.values(), ends.fed())
    for node in frozen.node:
        if node.name in variables and node.op == "Const" and f"{node.name}:0" not in weights:
            weights[f"{node.name}:0"] = tf.Variable(tf.make_ndarray(attribute(node, "value").tensor), trainable=False)
    own = {tensor: variable for tensor, variable in weights.items() if node_of(tensor) in variables}
    return endpoint_of(Part(frozen, ends, part.specs, part.producer, own), GraphSession(session, part.ends), name)


def _frozen(graph: Any, ends: Ends, session: Any) -> Any:
    variables = [node for node in graph.node if node.op in _VARIABLES]
    size = sum(_bytes(node) for node in variables)
    if size > _MOST_BYTES:
        raise CannotImport(
            f"its variables are {size:,} bytes; constants of a graph are at most {_MOST_BYTES:,}; where the code of "
            "the model is, save it by tf.compat.v1.saved_model"
        )
    try:
        with private_api.quiet():
            outputs = sorted({node_of(tensor) for tensor in ends.outputs.values()})
            return tf1.graph_util.convert_variables_to_constants(session, graph, outputs)
    except tf.errors.FailedPreconditionError as error:
        raise CannotImport(
            f"the checkpoint lacks a variable that the model reads: {first_meaningful_line(error)}"
        ) from None


def _bytes(node: Any) -> int:
    sizes = [max(dim.size, 1) for dim in attribute(node, "shape").shape.dim]
    width = int(tf.as_dtype(attribute(node, "dtype").type).size)
    return int(prod(sizes)) * width
