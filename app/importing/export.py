"""Writing a model that was read as a SavedModel: its endpoints are its signatures, with the source's names.

- Names of inputs that no Python function can have (`x:0`, `layer/x`, `class`) are numbered while TensorFlow saves,
  and written into saved_model.pb afterwards: a SignatureDef takes any name.
- Nothing but what the endpoints use is saved: no training, no optimizer, no metadata of Keras.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from keyword import iskeyword
from pathlib import Path
from re import fullmatch
from typing import Any

import tensorflow as tf

from app.core.inference import DEFAULT_SIGNATURE
from app.importing.order import CannotImport
from app.importing.source import Endpoint, Source, Tensors
from app.runtimes.tensorflow.private_api import SavedModelProto
from app.runtimes.tensorflow.saved_model.loading_folder import rename_inputs

#: The seed of random operations, so that two exports of a source are alike. Chosen.
_SEED = 33


# --- names ---


def renamed(source: Source, names: Mapping[str, str]) -> Source:
    """The source with other names of inputs and outputs. Raises CannotImport: a name is unknown, or not free."""
    if not names:
        return source
    if source.files:
        raise CannotImport("--rename changes names of an export; this source is served as it is, with its own names")
    # 1. The outputs are known when a call is traced.
    known = {name for each in source.endpoints for name in (*each.inputs, *output_names(each))}
    if unknown := sorted(names.keys() - known):
        raise CannotImport(f"--rename {unknown[0]}=...: there is no such name; there are {', '.join(sorted(known))}")
    return replace(source, endpoints=[_renamed(each, names) for each in source.endpoints])


def _renamed(endpoint: Endpoint, names: Mapping[str, str]) -> Endpoint:
    for each in (list(endpoint.inputs), output_names(endpoint)):
        new = [names.get(name, name) for name in each]
        if twice := sorted({name for name in new if new.count(name) > 1}):
            raise CannotImport(f"--rename gives the name {twice[0]!r} twice; there are {', '.join(sorted(each))}")
    old_inputs = {names.get(name, name): name for name in endpoint.inputs}

    def call(tensors: Tensors) -> Tensors:
        return _with_names(endpoint.call({old_inputs[name]: each for name, each in tensors.items()}), names)

    def run(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        return _with_names(endpoint.run({old_inputs[name]: each for name, each in arrays.items()}), names)

    inputs = {new: endpoint.inputs[old] for new, old in old_inputs.items()}
    usual = {names.get(name, name): shape for name, shape in endpoint.usual.items()}
    return replace(endpoint, inputs=inputs, call=call, run=run, usual=usual)


def _with_names(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in values.items()}


def output_names(endpoint: Endpoint) -> list[str]:
    """The names of an endpoint's outputs, found by tracing it."""
    return list(_traced(endpoint, {name: name for name in _numbered(endpoint.inputs)}).structured_outputs)


# --- the export ---


def export(source: Source, version: Path) -> None:
    """Writes the SavedModel of a source, or copies its files, into a folder that does not exist.

    Raises CannotImport.
    """
    if source.files:
        _copy(source.files, version)
        return
    names = [each.name for each in source.endpoints]
    if DEFAULT_SIGNATURE not in names or len(set(names)) < len(names):
        raise CannotImport(
            f"its signatures are {', '.join(names)}; each name once, and {DEFAULT_SIGNATURE} is expected"
        )
    tf.random.set_seed(_SEED)
    module = tf.Module()
    module.kept = list(source.kept)
    changed = _numbered({name: None for each in source.endpoints for name in each.inputs})
    signatures = {each.name: _traced(each, changed) for each in source.endpoints}
    module.functions = list(signatures.values())  # a reader finds ragged and sparse arguments there
    tf.saved_model.save(module, str(version), signatures=signatures)
    if any(number != name for number, name in changed.items()):
        _write_names(version / "saved_model.pb", changed)


def _copy(files: Mapping[str, Path], version: Path) -> None:
    version.mkdir()
    for name, path in files.items():
        target = version / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, target)
        else:
            shutil.copyfile(path, target)


def _numbered(inputs: Mapping[str, Any]) -> dict[str, str]:
    """By the name of a parameter, the input's name: the same if all are fit for Python, else numbers.

    TensorFlow sorts arguments by their names: numbers keep the order of the names that are written in their place.
    """
    if all(fullmatch("[A-Za-z][A-Za-z0-9_]*", name) and not iskeyword(name) and name != "self" for name in inputs):
        return {name: name for name in inputs}
    digits = len(str(len(inputs)))
    return {f"input_{number:0{digits}}": name for number, name in enumerate(sorted(inputs))}


def _traced(endpoint: Endpoint, names: Mapping[str, str]) -> Any:
    """The concrete function of an endpoint, whose parameters are the keys of `names`."""
    own = {number: name for number, name in names.items() if name in endpoint.inputs}

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def call(**tensors: Any) -> dict[str, Any]:
        return dict(endpoint.call({own[number]: tensor for number, tensor in tensors.items()}))

    specs = {number: _named(endpoint.inputs[name], number) for number, name in own.items()}
    return call.get_concrete_function(**specs)


def _named(spec: Any, name: str) -> Any:
    return tf.TensorSpec(spec.shape, spec.dtype, name) if isinstance(spec, tf.TensorSpec) else spec


def _write_names(file: Path, names: Mapping[str, str]) -> None:
    """Writes names of inputs into a saved_model.pb, in place of the numbers that they were saved with."""
    saved = SavedModelProto.FromString(file.read_bytes())
    for graph in saved.meta_graphs:
        rename_inputs(graph, names)
    file.write_bytes(saved.SerializeToString(deterministic=True))
    file.with_name("fingerprint.pb").unlink(missing_ok=True)  # of the other file
