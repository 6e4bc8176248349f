"""The folder that TensorFlow loads a SavedModel from: that of the SavedModel, or one beside it that it can load.

Rules
- TensorFlow takes a path with one of the characters `[]*?{}\\` for a pattern: a link with a plain name leads to the
  folder then.
- TensorFlow takes the names of inputs for parameters of Python functions. Names that cannot be (`class`, `self`, an
  empty one), or that become equal when TensorFlow replaces characters for Python (`user.id`, `user_id`), are
  numbered in a changed saved_model.pb; `renamed` has them.
- TensorFlow makes the slot variables of an optimizer by an optimizer's method, and a served model has none. No
  signature needs them, so the changed saved_model.pb does not have them.
- The other folder is a temporary one. It stays until the model is closed, whose calls may read its assets.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from keyword import iskeyword
from pathlib import Path
from typing import Any

from app.runtimes.tensorflow.private_api import SavedModelProto

_PATTERN = re.compile(r"[\[\]*?{}\\]")

#: Parameters of the method that calls a function.
_TAKEN = frozenset({"self"})

_OPTIMIZER, _PLAIN_OBJECT = "optimizer", "_generic_user_object"


class LoadingFolder:
    """The folder to load the SavedModel in folder `path` from.

    Args:
        meta_graph: its MetaGraphDef that is served.
        as_functions: whether its signatures become Python functions.

    Attributes:
        path: the folder to load from.
        note: the change of the model there; empty if it is the same.
        renamed: the names of inputs there, by their names in `path`; empty if they are the same.

    Raises:
        OSError: there is no room for a temporary folder.
    """

    def __init__(self, path: Path, meta_graph: Any, *, as_functions: bool = True) -> None:
        self.path = path
        inputs = [sorted(each.inputs) for each in meta_graph.signature_def.values()]
        self.renamed = _numbered(inputs) if as_functions else {}
        slots = as_functions and _has_slots(meta_graph)
        self.note = "it is loaded without the slot variables of its optimizer" if slots else ""
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        changed = self.renamed or slots
        if changed or _PATTERN.search(os.path.abspath(path)):
            self._folder = tempfile.TemporaryDirectory(prefix="ferry-model-", ignore_cleanup_errors=True)
            self.path = Path(self._folder.name, "model")
            if changed:
                self._change(path, meta_graph)
            else:
                self.path.symlink_to(path.absolute(), target_is_directory=True)

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def _change(self, path: Path, meta_graph: Any) -> None:
        """Makes a folder of links to the entries of `path`, with another saved_model.pb."""
        self.path.mkdir()
        for entry in path.absolute().iterdir():
            if entry.name not in {"saved_model.pb", "fingerprint.pb"}:
                (self.path / entry.name).symlink_to(entry)
        saved = SavedModelProto.FromString((path / "saved_model.pb").read_bytes())
        for graph in saved.meta_graphs:
            if graph.meta_info_def.tags == meta_graph.meta_info_def.tags:
                rename_inputs(graph, self.renamed)
                _drop_slots(graph.object_graph_def)
        (self.path / "saved_model.pb").write_bytes(saved.SerializeToString())


# --- names of inputs ---


def _numbered(signatures: Sequence[Sequence[str]]) -> dict[str, str]:
    """New names for the inputs of all signatures, in the same order; empty if all can keep theirs."""
    if all(map(_are_parameters, signatures)):
        return {}
    names = sorted({name for names in signatures for name in names})
    digits = len(str(len(names)))
    return {name: f"input_{number:0{digits}}" for number, name in enumerate(names)}


def _are_parameters(names: Sequence[str]) -> bool:
    """Whether these names can be the parameters of a function, as TensorFlow sanitises them."""
    sanitised = {"".join(each if each.isalnum() else "_" for each in name) for name in names}
    return all(names) and len(sanitised) == len(names) and not any(iskeyword(each) or each in _TAKEN for each in names)


def rename_inputs(graph: Any, names: Mapping[str, str]) -> None:
    """Renames inputs of all signatures of a MetaGraphDef, by their present names."""
    for definition in graph.signature_def.values():
        _rename_keys(definition.inputs, names)
    objects = graph.object_graph_def
    for called in objects.concrete_functions.values():
        by_name = called.canonicalized_input_signature.tuple_value.values[1:]
        for arguments in by_name:
            _rename_keys(arguments.dict_value.fields, names)
            for each in arguments.dict_value.fields.values():
                if each.WhichOneof("kind") == "tensor_spec_value":
                    each.tensor_spec_value.name = names.get(each.tensor_spec_value.name, each.tensor_spec_value.name)
    for function in (node.bare_concrete_function for node in objects.nodes):
        if names.keys() & set(function.argument_keywords):
            function.argument_keywords[:] = [names.get(each, each) for each in function.argument_keywords]
            function.ClearField("function_spec")  # it has the old names, and no more facts than the arguments


def _rename_keys(fields: Any, names: Mapping[str, str]) -> None:
    """Renames the keys of a map of messages."""
    values = {}
    for name in list(fields):
        values[name] = type(fields[name])()
        values[name].CopyFrom(fields[name])
        del fields[name]
    for name, value in values.items():
        fields[names.get(name, name)].CopyFrom(value)


# --- optimizers ---


def _has_slots(meta_graph: Any) -> bool:
    return any(node.slot_variables for node in meta_graph.object_graph_def.nodes)


def _drop_slots(objects: Any) -> None:
    """Makes optimizers plain objects, and drops their slot variables unless other objects refer to them."""
    slots = {slot.slot_variable_node_id for node in objects.nodes for slot in node.slot_variables}
    wanted = {number for function in objects.concrete_functions.values() for number in function.bound_inputs}
    wanted |= {child.node_id for node in objects.nodes for child in (*node.children, *node.dependencies)}
    for node in objects.nodes:
        node.ClearField("slot_variables")
        if node.user_object.identifier == _OPTIMIZER:
            node.user_object.identifier = _PLAIN_OBJECT
    for number in slots - wanted:
        objects.nodes[number].Clear()
        objects.nodes[number].user_object.identifier = _PLAIN_OBJECT
