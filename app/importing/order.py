"""The order for an import: the source, where to, and what its caller asks for. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


class CannotImport(ValueError):
    """The source cannot be imported. The text is one sentence that says why, and what to do."""


@dataclass(frozen=True, slots=True)
class ImportOrder:
    """All fields are plain, so that an order travels to the child process as JSON.

    source: the file or folder.
    destination: the folder of the version to write; it does not exist.
    rename: by the name of an input or output of the source, its name in the import.
    inputs, outputs: names of tensors of a graph (frozen, or TensorFlow 1's) that has no signature; empty: found.
    accept: 'jpeg' puts the decoding and resizing of images into the graph, 'text' the model's own vectorisation.
    pixels: the range of pixels that the model takes, where `accept` is 'jpeg'.
    labels: the file of the names of classes, a line for each; empty for none.
    samples: a file of inputs that the import is proven with (npz or JSON); empty for random ones alone.
    trust: whether code inside the source (lambda layers, custom classes) may run.
    limit_s: the most seconds.
    memory_bytes: the most memory.
    """

    source: str
    destination: str
    rename: Mapping[str, str] = field(default_factory=dict)
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    accept: str = ""
    pixels: str = ""
    labels: str = ""
    samples: str = ""
    trust: bool = False
    limit_s: float = 300.0
    memory_bytes: int = 0
