"""How requests of different shapes share a call: padded to the longest of the batch, and cut back. Pure.

Rules
- A request is padded no further than to another one in its batch, so never to a size that nobody sent: models have
  limits (a table of positions) which no signature tells.
- The dimensions that are one size in each request (tokens and their mask) are so in the call as well.
- An output is cut back where its dimension follows an input's. Which does was seen at warm-up (padding_probe.py);
  an output of another shape than that ends the sharing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from app.batching.shape_buckets import ShapeBuckets
from app.inference import Array

#: Inner dimensions (all but the first): a number where the size is fixed, a name where it is free. Dimensions of
#: one name are of one size.
NamedShape = tuple[int | str, ...]

#: The inner shape of each input.
Shapes = tuple[tuple[int, ...], ...]


@dataclass(slots=True, eq=False)
class ShapePadding:
    """What is known of the shapes of one signature.

    Attributes:
        values: what an input is padded with.
        call_cells: a call costs as much as so many cells, beside what its own cells cost; see `cells`.
        trusted: False once an output had a shape that was not expected; nobody is padded from then on.
    """

    inputs: Mapping[str, NamedShape]
    outputs: Mapping[str, NamedShape]
    values: Mapping[str, Any]
    buckets: ShapeBuckets = field(default_factory=ShapeBuckets)
    call_cells: float = 0.0
    trusted: bool = True
    _cells: dict[Shapes, int] = field(default_factory=dict)

    def bucket(self, inputs: Mapping[str, Array]) -> Shapes | None:
        """The greatest inner shape of each input that may share a call with these; None for equal shapes only.

        So it is where dimensions of one name differ: the model may refuse that, and padding would hide why.
        """
        sizes = self._sizes(inputs)
        if not self.trusted or any(
            inputs[name].shape[1:] != _sized(shape, sizes) for name, shape in self.inputs.items()
        ):
            return None
        tops = {name: self.buckets.top(size) for name, size in sizes.items()}
        return tuple([_sized(shape, tops) for shape in self.inputs.values()])

    def cells(self, shape: Shapes) -> int:
        """Elements of a row of this inner shape, over the inputs with a free dimension; at least 1."""
        cells = self._cells.get(shape)
        if cells is None:
            named = zip(self.inputs.values(), shape, strict=True)
            cells = sum(prod(sizes) for names, sizes in named if any(isinstance(name, str) for name in names))
            cells = self._cells[shape] = max(cells, 1)
        return cells

    def join(self, requests: Sequence[Mapping[str, Array]], rows: int) -> dict[str, Array]:
        """The inputs of all requests, stacked and padded to one shape and `rows` rows."""
        return {name: _stack([inputs[name] for inputs in requests], rows, self.values[name]) for name in self.inputs}

    def misfit(self, outputs: Mapping[str, Array], inputs: Mapping[str, Array]) -> str:
        """What is wrong with the shapes of what a call with these inputs returned; empty where all is well."""
        sizes = self._sizes(inputs)
        for name, output in outputs.items():
            expected = _sized(self.outputs[name], sizes)
            if output.shape[1:] != expected:
                return f"output {name!r} has shape {output.shape}, not {(len(output), *expected)}"
        return ""

    def cut(self, outputs: Mapping[str, Array], inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The rows of the request that sent these inputs, cut back to its own sizes."""
        sizes = self._sizes(inputs)
        return {name: _cut(output, _sized(self.outputs[name], sizes)) for name, output in outputs.items()}

    def _sizes(self, inputs: Mapping[str, Array]) -> dict[str, int]:
        return {
            dimension: size
            for name, shape in self.inputs.items()
            for dimension, size in zip(shape, inputs[name].shape[1:], strict=True)
            if isinstance(dimension, str)
        }

    def __str__(self) -> str:
        return f"{_listed(self.inputs)} -> {_listed(self.outputs)}"


def _sized(shape: NamedShape, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple([sizes[dimension] if isinstance(dimension, str) else dimension for dimension in shape])


def _stack(parts: Sequence[Array], rows: int, value: Any) -> Array:
    inner = [max(sizes) for sizes in zip(*[part.shape[1:] for part in parts], strict=True)]
    stacked = np.full((rows, *inner), value, parts[0].dtype)
    end = 0
    for part in parts:
        start, end = end, end + len(part)
        stacked[(slice(start, end), *map(slice, part.shape[1:]))] = part
    stacked[end:] = stacked[:1]  # as in batch.py: a real row
    return stacked


def _cut(output: Array, inner: tuple[int, ...]) -> Array:
    if output.shape[1:] == inner:
        return output
    return np.ascontiguousarray(output[(slice(None), *map(slice, inner))])


def _listed(shapes: Mapping[str, NamedShape]) -> str:
    return ", ".join(f"{name}[{','.join(map(str, ('?', *shape)))}]" for name, shape in shapes.items())
