"""The fingerprint of a graph, equal for two exports of the same model with any weights; and a digest of its weights.

Names of nodes and functions do not count, since they carry numbers of the process that saved them; nor do attributes
that only name a resource or its place. Nodes count by their place. Each function is read once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from app.runtimes.tensorflow.graph_nodes import called_names, functions_of

#: Attributes that do not change the results of an operation, as all that begin with "_".
_NOT_COUNTED = frozenset({"config", "config_proto", "container", "executor_type", "shared_name"})


def graph_fingerprint(graph: Any) -> str:
    """64 hexadecimal digits for a GraphDef with the functions that it calls."""
    functions = functions_of(graph)
    digests: dict[str, bytes] = {}
    for name in _callees_first(functions, graph.node):
        function = functions[name]
        arguments = [arg.name for arg in function.signature.input_arg]
        results = [function.ret[arg.name] for arg in function.signature.output_arg]
        digests[name] = _digest(function.node_def, arguments, results, digests)
    return _digest(graph.node, (), (), digests).hex()


def weights_digest(model: Path) -> str:
    """64 hexadecimal digits for the values of a SavedModel's variables, and for its assets, which fill tables.

    The index of the variables holds a checksum of each, so the variables themselves are not read.
    """
    digest = hashlib.sha256()
    assets = sorted(file for file in (model / "assets").rglob("*") if file.is_file())
    for file in (model / "variables" / "variables.index", *assets):
        _add(digest, file.relative_to(model).as_posix().encode(), _content_digest(file))
    return digest.hexdigest()


def _content_digest(file: Path) -> bytes:
    """The digest of a file, which is read in pieces: a vocabulary may be large. A missing file counts as empty."""
    if not file.is_file():
        return hashlib.sha256().digest()
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").digest()


def _callees_first(functions: Mapping[str, Any], nodes: Iterable[Any]) -> list[str]:
    """The called functions, a callee before its caller; a circle of calls is cut where it closes."""
    order: dict[str, None] = {}
    entered: set[str] = set()
    stack = [(name, False) for name in _called(nodes)]
    while stack:
        name, left = stack.pop()
        if left:
            order[name] = None
        elif name in functions and name not in entered:
            entered.add(name)
            stack.append((name, True))
            stack += [(each, False) for each in _called(functions[name].node_def)]
    return list(order)


def _called(nodes: Iterable[Any]) -> list[str]:
    return sorted({name for node in nodes for name in called_names(node)})


def _digest(
    nodes: Iterable[Any], arguments: Iterable[str], results: Iterable[str], digests: Mapping[str, bytes]
) -> bytes:
    """The digest of nodes in their order, and of the sources of the results."""
    digest = hashlib.sha256()
    places = {name: f"argument {place}" for place, name in enumerate(arguments)}
    nodes = list(nodes)
    places |= {node.name: str(place) for place, node in enumerate(nodes)}
    for node in nodes:
        _add(digest, digests.get(node.op, node.op.encode()), *[_place(each, places) for each in node.input])
        for key in sorted(node.attr):
            if not (key.startswith("_") or key in _NOT_COUNTED):
                _add(digest, key.encode(), _attribute(node.attr[key], digests))
    _add(digest, *[_place(each, places) for each in results])
    return digest.digest()


def _attribute(value: Any, digests: Mapping[str, bytes]) -> bytes:
    """The bytes of an attribute; functions in it count by their digests, in place of their names."""
    named = [value.func] if value.WhichOneof("value") == "func" else list(value.list.func)
    if not named:
        content: bytes = value.SerializeToString(deterministic=True)
        return content
    return b"".join(digests.get(each.name, each.name.encode()) for each in named)


def _place(tensor: str, places: Mapping[str, str]) -> bytes:
    """The source of a tensor 'node', 'node:0', 'node:output:0' or '^node', by the place of the node."""
    control, name = tensor[:1] == "^", tensor.removeprefix("^")
    node, _, output = name.partition(":")
    return f"{'^' * control}{places.get(node, node)}:{output}".encode()


def _add(digest: Any, *parts: bytes) -> None:
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
