"""A model that a reader of `formats/` has read: what an export, and its proof, need of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.core.inference import DEFAULT_SIGNATURE, Array

#: Tensors by name, while a graph is traced.
Tensors = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One callable of the source, which becomes a signature.

    inputs: tf.TensorSpec by name; the first dimension is None wherever the model allows any number of rows, others
        where the layers allow any size. Names are those of layers or tensors, never made up where a name exists.
    call: the outputs by name, from tensors that fit `inputs`; it is traced once, for the export.
    run: the outputs by name of the source itself, from arrays, on a way that shares as little as possible with `call`
        and the export: the oracle of the proof.
    usual: by input, the shape that the source was made for, where the reader freed sizes of it: `--accept jpeg` resizes
        images to it.
    """

    inputs: Mapping[str, Any]
    call: Callable[[Tensors], Tensors]
    run: Callable[[Mapping[str, Array]], Mapping[str, Array]]
    name: str = DEFAULT_SIGNATURE
    usual: Mapping[str, Sequence[int | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Source:
    """The model that was read.

    format: for people, with the library that reads it: 'Keras 3 archive'.
    kept: objects (variables, tables, assets, modules) that an export must keep, since `call` uses them.
    files: files to copy into the version instead of an export, by their name there (a SavedModel that can be served as
        it is, model.tflite); then `call` is not traced, and names are those of the files.
    labels: names of classes that the source itself knows.
    vectorise: the model's own vectorisation of text, for `--accept text`; None if it has none.
    notes: remarks for the line of the result.
    """

    format: str
    endpoints: Sequence[Endpoint]
    kept: Sequence[Any] = ()
    files: Mapping[str, Path] = field(default_factory=dict)
    labels: Sequence[str] = ()
    vectorise: Callable[[Any], Any] | None = None
    notes: Sequence[str] = ()
