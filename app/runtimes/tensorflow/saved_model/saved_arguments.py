"""The composite arguments (RaggedTensor, SparseTensor) of the function that a signature calls.

A SignatureDef lists the parts of such an input like other tensors. But the function was saved with its composite
arguments, which tell the parts of one input. A function that was saved for its signature alone has none; but the
tensors of one argument have the same name there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import groupby
from typing import Any

from app.core.inference import Dimension
from app.runtimes.tensorflow.graph_nodes import functions_of, node_of, sizes_of

#: The type of a tensor, as TensorFlow numbers them, and its shape.
Tensor = tuple[int, tuple[Dimension, ...]]


def saved_arguments(meta_graph: Any, definition: Any, kind: int) -> list[Any]:
    """The TypeSpecProtos of this class (of TypeSpecProto's) among the arguments of the signature's function."""
    functions = meta_graph.object_graph_def.concrete_functions
    found = {
        name: [
            spec for spec in _type_specs(functions[name].canonicalized_input_signature) if spec.type_spec_class == kind
        ]
        for name in _functions(meta_graph, definition)
        if name in functions
    }
    return next((arguments for arguments in found.values() if arguments), [])


def arguments_of_one_name(meta_graph: Any, definition: Any, tensors: int) -> Iterator[list[Tensor]]:
    """The tensors, in order, of each argument of the signature's function that is `tensors` tensors of known rank."""
    bodies = functions_of(meta_graph.graph_def)
    for name in _functions(meta_graph, definition):
        if name in bodies:
            places = range(len(bodies[name].signature.input_arg))
            for argument, group in groupby(places, key=partial(_argument_name, bodies[name])):
                found = [_tensor(bodies[name], place) for place in group] if argument else []
                if len(found) == tensors and None not in found:
                    yield [each for each in found if each is not None]


def _functions(meta_graph: Any, definition: Any) -> list[str]:
    """The names of the function that the signature calls, and of the functions that it calls."""
    bodies = functions_of(meta_graph.graph_def)
    outputs = [each for out in definition.outputs.values() for each in (out, *out.composite_tensor.components)]
    nodes = {node_of(tensor.name) for tensor in outputs}
    calls = _called(node for node in meta_graph.graph_def.node if node.name in nodes)
    return [inner for name in calls for inner in (name, *_called(bodies[name].node_def if name in bodies else ()))]


def _argument_name(function: Any, place: int) -> bytes:
    """The name of the argument in Python; empty if it is not known."""
    attributes = function.arg_attr[place].attr if place in function.arg_attr else {}
    return bytes(attributes["_user_specified_name"].s) if "_user_specified_name" in attributes else b""


def _tensor(function: Any, place: int) -> Tensor | None:
    attributes: Any = function.arg_attr[place].attr
    shapes: Any = attributes["_output_shapes"].list.shape if "_output_shapes" in attributes else ()
    sizes = sizes_of(shapes[0]) if len(shapes) == 1 else None
    return None if sizes is None else (function.signature.input_arg[place].type, sizes)


def _called(nodes: Any) -> list[str]:
    return [node.attr["f"].func.name for node in nodes if "f" in node.attr]


def _type_specs(value: Any) -> Iterator[Any]:
    """All composite arguments in a structure of arguments."""
    kind = value.WhichOneof("kind")
    if kind == "type_spec_value":
        yield value.type_spec_value
    elif kind in {"tuple_value", "list_value"}:
        for each in getattr(value, kind).values:
            yield from _type_specs(each)
    elif kind == "dict_value":
        for each in value.dict_value.fields.values():
            yield from _type_specs(each)
