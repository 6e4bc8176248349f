"""Names for the functions of a graph, such as the bodies of its loops, that follow from their content.

TensorFlow numbers the functions of a process in the order in which they are made, and its cache of compiled code takes
the names for part of the content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from app.runtimes.tensorflow.graph_nodes import called_in, functions_of

#: The beginning of names by content.
PREFIX = "ferry_"


def name_functions(graph: Any) -> list[Any]:
    """Renames the functions that a GraphDef calls, in its library and where they are called. Returns them."""
    library = functions_of(graph)
    names: dict[str, str] = {}

    def rename_in(nodes: Iterable[Any]) -> None:
        for node in nodes:
            if node.op in library:
                node.op = name_of(node.op)
            for called in called_in(node):
                if called.name in library:
                    called.name = name_of(called.name)

    def name_of(name: str) -> str:
        if name not in names:
            names[name] = name  # for a function that calls itself
            function = library[name]
            rename_in(function.node_def)
            _forget_origin(function)
            function.signature.name = names[name] = name_by_content(function)
        return names[name]

    rename_in(graph.node)
    renamed = {library[name].signature.name: library[name] for name in names}  # equal functions have one name
    others = [function for function in graph.library.function if function.signature.name not in renamed]
    kept = [_copy(function) for function in (*others, *renamed.values())]
    del graph.library.function[:]
    graph.library.function.extend(kept)
    return kept[len(others) :]


def name_by_content(function: Any) -> str:
    """The name of a FunctionDef by its content, without its present name."""
    content = _copy(function)
    content.signature.name = ""
    _drop_argument_names(content)
    return f"{PREFIX}{hashlib.sha256(content.SerializeToString(deterministic=True)).hexdigest()[:32]}"


def _forget_origin(function: Any) -> None:
    """Drops fields that name other functions and tensors by their numbers."""
    for node in function.node_def:
        node.ClearField("experimental_debug_info")
    _drop_argument_names(function)


def _drop_argument_names(function: Any) -> None:
    for argument in function.arg_attr.values():
        argument.attr.pop("_user_specified_name", None)  # the name of a captured tensor is its number


def _copy(function: Any) -> Any:
    return type(function).FromString(function.SerializeToString())
