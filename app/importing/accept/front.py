"""What comes before a model, as a part of its graph, and the source that begins with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import tensorflow as tf

from app.core.inference import DEFAULT_SIGNATURE, Array
from app.importing.order import CannotImport
from app.importing.source import Endpoint, Source, Tensors

#: The signature with the model's own inputs, beside the default one.
OWN_INPUTS = "tensors"


@dataclass(frozen=True, slots=True)
class Front:
    """One input of strings in place of inputs of the model.

    name: of the input. spec: its tf.TensorSpec.
    replaces: the inputs of the model that it gives.
    call: these inputs, from a tensor of strings, while a graph is traced.
    run: these inputs from an array of strings, on another way: for the proof.
    kept: objects that `call` uses.
    note: a remark for the line of the result.
    """

    name: str
    spec: Any
    replaces: frozenset[str]
    call: Callable[[Any], Tensors]
    run: Callable[[Array], Mapping[str, Array]]
    note: str
    kept: tuple[Any, ...] = ()


def default_endpoint(source: Source) -> Endpoint:
    """The endpoint that gets a front. Raises CannotImport: the source cannot have one."""
    names = [each.name for each in source.endpoints]
    if OWN_INPUTS in names:
        raise CannotImport(f"--accept makes a signature {OWN_INPUTS!r}; the source has one of this name")
    return next((each for each in source.endpoints if each.name == DEFAULT_SIGNATURE), source.endpoints[0])


def exported(source: Source) -> Source:
    """A source whose files would be copied as one that is exported. Raises CannotImport: its graph cannot be traced."""
    if not source.files:
        return source
    if "saved_model.pb" not in source.files:
        raise CannotImport(f"--accept changes an export; this source ({source.format}) is served as it is")
    folder = Path(mkdtemp(prefix="ferry-import-"))  # the process removes it; an export copies assets from there
    for name, path in source.files.items():
        (folder / name).symlink_to(path.absolute())
    loaded = tf.saved_model.load(str(folder))

    def with_call(endpoint: Endpoint) -> Endpoint:
        function = loaded.signatures[endpoint.name]
        names = dict(zip(sorted(endpoint.inputs), sorted(function.structured_input_signature[1]), strict=True))
        return replace(endpoint, call=lambda tensors: function(**{names[name]: each for name, each in tensors.items()}))

    return replace(source, endpoints=list(map(with_call, source.endpoints)), files={}, kept=[*source.kept, loaded])


def behind(front: Front, source: Source, endpoint: Endpoint) -> Source:
    """The source with the front before one of its endpoints, which stays as `tensors`."""
    others = {name: spec for name, spec in endpoint.inputs.items() if name not in front.replaces}
    if front.name in others:
        raise CannotImport(f"--accept makes an input {front.name!r}; the source has one of this name (--rename)")

    def call(tensors: Tensors) -> Tensors:
        own = {name: tensors[name] for name in others}
        return endpoint.call({**own, **front.call(tensors[front.name])})

    def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        own = {name: arrays[name] for name in others}
        return endpoint.run({**own, **front.run(arrays[front.name])})

    fronted = Endpoint({front.name: front.spec, **others}, call, run, DEFAULT_SIGNATURE)
    kept = [replace(each, name=OWN_INPUTS) if each is endpoint else each for each in source.endpoints]
    return replace(
        source,
        endpoints=[fronted, *kept],
        kept=[*source.kept, *front.kept],
        notes=[*source.notes, f"{front.note}; signature {OWN_INPUTS!r} takes the model's own inputs"],
    )
