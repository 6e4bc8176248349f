"""The composite arguments (RaggedTensor, SparseTensor) of the function that a signature calls.

A SignatureDef lists the parts of such an input like other tensors. But the function was saved with its own arguments,
and these say what belongs together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def saved_arguments(meta_graph: Any, definition: Any, kind: int) -> list[Any]:
    """The TypeSpecProtos of this class (of TypeSpecProto's) among the arguments of the signature's function."""
    functions = meta_graph.object_graph_def.concrete_functions
    bodies = {function.signature.name: function.node_def for function in meta_graph.graph_def.library.function}
    outputs = [each for out in definition.outputs.values() for each in (out, *out.composite_tensor.components)]
    nodes = {tensor.name.partition(":")[0] for tensor in outputs}
    calls = _called(node for node in meta_graph.graph_def.node if node.name in nodes)
    called = [inner for name in calls for inner in (name, *_called(bodies.get(name, ())))]
    found = {
        name: [spec for spec in _type_specs(functions[name].canonicalized_input_signature) if _is(spec, kind)]
        for name in called
        if name in functions
    }
    return next((arguments for arguments in found.values() if arguments), [])


def _is(spec: Any, kind: int) -> bool:
    return bool(spec.type_spec_class == kind)


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
