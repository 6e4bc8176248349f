"""The check whether a SavedModel would reach outside itself, before anything of it runs.

1. Operations run that signatures, initializers and the restoring of variables reach, functions included. The rest of a
   graph (saving, training steps) never runs, and is not checked.
2. An operation of `forbidden_operations` that runs is rejected unless it is allowed by name, or reads a file of the
   model: the path comes, through arguments and Identity alone, from one of its assets, or, where variables are
   restored, from the loader. A forest is read from the folder of one of its files.
3. In doubt it is rejected: a path that was computed, or that passed a loop, does not count as one of the model.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from app.runtimes.tensorflow.graph_nodes import CALLS, called_names, data_inputs, functions_of, node_of
from app.runtimes.tensorflow.graph_part import needed_nodes, tensors_of
from app.runtimes.tensorflow.saved_model.forbidden_operations import PATH_INPUT, why_forbidden

#: The functions of a SavedModel's objects that the loader calls, beside signatures.
_CALLED_BY_THE_LOADER = frozenset({"_create_resource", "_initialize", "_destroy_resource"})

#: Collections of TensorFlow 1: the nodes that the loader runs, and the assets.
_INIT_COLLECTIONS = ("saved_model_main_op", "legacy_init_op")
_ASSETS_COLLECTION = "saved_model_assets"
_INIT_SIGNATURE = "__saved_model_init_op"

#: The name of the file that ends a forest, with its prefix.
_DONE = re.compile(r"\w*done")


class ForbiddenOperation(ValueError):
    """A model would reach outside. The text names the operation, its effect and the setting that allows it."""


def check_operations(meta_graph: Any, allowed: Collection[str] = (), called: Collection[str] = ()) -> None:
    """Raises ForbiddenOperation if an operation of a MetaGraphDef that runs reaches outside and is not in `allowed`.

    Args:
        called: names of functions of its objects that the caller calls, beside its signatures.
    """
    _check_assets(meta_graph)
    _Check(meta_graph, allowed).run(called)


class _Check:
    """The check of one MetaGraphDef: a walk over the functions that run, with their arguments that are paths."""

    def __init__(self, meta_graph: Any, allowed: Collection[str]) -> None:
        self._meta_graph = meta_graph
        self._allowed = frozenset(allowed)
        self._functions = functions_of(meta_graph.graph_def)
        self._gradients = {each.function_name: each.gradient_func for each in meta_graph.graph_def.library.gradient}
        self._alternatives: dict[str, list[str]] = {}  # functions of one interface: TensorFlow may call any of them
        for name, function in self._functions.items():
            if interface := _interface(function):
                self._alternatives.setdefault(interface, []).append(name)
        self._waiting: list[tuple[str, frozenset[int]]] = []  # functions, and their arguments that are paths
        self._seen: set[tuple[str, frozenset[int]]] = set()

    def run(self, called: Collection[str] = ()) -> None:
        assets = frozenset(each.tensor_info.name for each in _assets(self._meta_graph))
        signatures = self._meta_graph.signature_def
        saver = self._meta_graph.saver_def

        # 1. The graph: the nodes of calls, of initializers, and of the restoring of variables.
        outputs = [
            tensors_of(output)
            for name in signatures
            if name != _INIT_SIGNATURE
            for output in signatures[name].outputs.values()
        ]
        nodes = {node.name: node for node in self._meta_graph.graph_def.node}
        placeholders = {each for each in assets if (node := nodes.get(node_of(each))) and node.op == "Placeholder"}
        self._graph(nodes, [each for tensors in outputs for each in tensors], placeholders)
        self._graph(nodes, _initializers(self._meta_graph), assets)
        self._graph(nodes, [saver.restore_op_name], assets | {saver.filename_tensor_name})

        # 2. The objects: their signatures, and the functions that the loader calls.
        for name, bound_to_assets in _functions_of_objects(self._meta_graph.object_graph_def):
            self._call(name, self._captures(name, bound_to_assets))
        for name in called:
            self._call(name, frozenset())

        # 3. The functions that the nodes call.
        while self._waiting:
            self._function(*self._waiting.pop())

    def _graph(self, nodes: Mapping[str, Any], roots: Iterable[str], given: Collection[str]) -> None:
        """Checks the nodes that these nodes or tensors reach; `given` are tensors that hold paths of the model."""
        paths = _Paths(nodes, {node_of(each) for each in given})
        for name in sorted(needed_nodes(nodes, filter(None, roots), ())):
            self._node(nodes[name], paths)

    def _function(self, name: str, given: frozenset[int]) -> None:
        function = self._functions[name]
        arguments = [argument.name for argument in function.signature.input_arg]
        paths = _Paths(
            {node.name: node for node in function.node_def}, {arguments[n] for n in given if n < len(arguments)}
        )
        for node in function.node_def:
            self._node(node, paths)

    def _node(self, node: Any, paths: _Paths) -> None:
        givers = data_inputs(node)
        if node.op not in self._allowed and (reason := why_forbidden(node)):
            place = PATH_INPUT.get(node.op)
            if place is None or place >= len(givers) or not paths.holds(givers[place]) or _leaves_folder(node):
                raise ForbiddenOperation(
                    f"its operation {node.op} ({node.name[:128]}) {reason};"
                    " the setting allowed_operations allows it by name"
                )
        passes_operands = node.op in CALLS or node.op in self._functions
        given = frozenset([n for n, giver in enumerate(givers) if passes_operands and paths.holds(giver)])
        for name in called_names(node):
            self._call(name, given)

    def _call(self, name: str, given: frozenset[int]) -> None:
        if name not in self._functions or (name, given) in self._seen:
            return
        self._seen.add((name, given))
        self._waiting.append((name, given))
        self._call(self._gradients.get(name, ""), frozenset())
        for other in self._alternatives.get(_interface(self._functions[name]), ()):
            self._call(other, given)

    def _captures(self, name: str, bound_to_assets: list[bool]) -> frozenset[int]:
        """The arguments of a function that are bound to assets: bound arguments come last."""
        arguments = self._functions[name].signature.input_arg if name in self._functions else ()
        first = len(arguments) - len(bound_to_assets)
        if first < 0:  # TensorFlow would bind them in another order
            return frozenset()
        return frozenset(first + number for number, is_asset in enumerate(bound_to_assets) if is_asset)


class _Paths:
    """The tensors of a graph or a function that hold paths of the model: those of the nodes or arguments `given`."""

    def __init__(self, nodes: Mapping[str, Any], given: Collection[str]) -> None:
        self._nodes = nodes
        self._given = given

    def holds(self, tensor: str) -> bool:
        """Whether a tensor holds a path of the model."""
        source = self._source(tensor)
        if source in self._given:
            return True
        node = self._nodes.get(source)
        if node is None or node.op != "ReadVariableOp" or not self._given:
            return False
        values = self._assigned.get(self._source(node.input[0]), ())
        return bool(values) and all(value in self._given for value in values)

    @cached_property
    def _assigned(self) -> Mapping[str, list[str]]:
        """The sources of the values of each variable."""
        values: dict[str, list[str]] = {}
        for node in self._nodes.values():
            if node.op == "AssignVariableOp":
                values.setdefault(self._source(node.input[0]), []).append(self._source(node.input[1]))
        return values

    def _source(self, tensor: str) -> str:
        """The node or argument that a tensor comes from, followed back through Identity, and to a folder's file."""
        for _ in range(len(self._nodes) + 1):  # a graph may hold a circle
            node = self._nodes.get(node_of(tensor))
            if node is None or not (node.op == "Identity" or _makes_folder(node)) or not node.input:
                break
            tensor = node.input[0]
        return node_of(tensor)


def _makes_folder(node: Any) -> bool:
    """Whether a node makes the folder of a forest from the path of its file `done`, as Yggdrasil's exports do."""
    if node.op != "StaticRegexReplace" or node.attr["rewrite"].s:
        return False
    return _DONE.fullmatch(node.attr["pattern"].s.decode(errors="replace")) is not None


def _leaves_folder(node: Any) -> bool:
    """Whether a node reads files by a name that leads out of the folder that it is given."""
    return "file_prefix" in node.attr and b"/" in node.attr["file_prefix"].s


def _interface(function: Any) -> str:
    """The interface that a FunctionDef implements; empty if it names none."""
    return str(function.attr["api_implements"].s.decode(errors="replace"))


def _initializers(meta_graph: Any) -> list[str]:
    signature = meta_graph.signature_def.get(_INIT_SIGNATURE)
    named = [each.name for each in signature.outputs.values()] if signature else []
    for name in _INIT_COLLECTIONS:
        if name in meta_graph.collection_def:
            named += meta_graph.collection_def[name].node_list.value
    return named


def _functions_of_objects(objects: Any) -> Iterator[tuple[str, list[bool]]]:
    """The concrete functions that the loader calls or serves, and for each of their captures whether it is an asset."""
    nodes = objects.nodes
    for number, node in enumerate(nodes):
        for child in node.children:
            if child.local_name in _CALLED_BY_THE_LOADER:
                yield from _concrete(objects, child.node_id)
            if number == 0 and child.local_name == "signatures":
                for signature in nodes[child.node_id].children:
                    yield from _concrete(objects, signature.node_id)
        for saveable in node.saveable_objects.values():
            yield from _concrete(objects, saveable.restore_function)


def _concrete(objects: Any, number: int) -> Iterator[tuple[str, list[bool]]]:
    node = objects.nodes[number]
    for name in (node.bare_concrete_function.concrete_function_name, *node.function.concrete_functions):
        if name in objects.concrete_functions:
            bound = objects.concrete_functions[name].bound_inputs
            yield name, [objects.nodes[each].WhichOneof("kind") == "asset" for each in bound]


def _assets(meta_graph: Any) -> list[Any]:
    """The AssetFileDefs, from their field or from the collection that TensorFlow 1 writes."""
    if meta_graph.asset_file_def or _ASSETS_COLLECTION not in meta_graph.collection_def:
        return list(meta_graph.asset_file_def)
    assets = type(meta_graph)().asset_file_def
    for packed in meta_graph.collection_def[_ASSETS_COLLECTION].any_list.value:
        packed.Unpack(assets.add())
    return list(assets)


def _check_assets(meta_graph: Any) -> None:
    """Raises ForbiddenOperation if an asset lies outside the folder of assets."""
    for asset in _assets(meta_graph):
        if asset.filename.startswith("/") or ".." in asset.filename.split("/"):
            raise ForbiddenOperation(f"its asset {asset.filename[:128]!r} lies outside the folder assets")
