"""Shape padding: requests of different inner shapes share a call, padded to the longest, and are cut back. No I/O.

Rules (test_padding.py, tests/laws/test_mixed_shapes.py)
- A request is padded to a size that another request of its batch has, since models have limits (a table of positions)
  that their signatures do not tell. If the model was compiled for the largest size of the bucket, it is padded to that,
  which the model is known to accept.
- Dimensions that have the same name (tokens and their mask) have the same size in the call.
- An output is cut back in the dimensions that follow an input's. The padding probe found which do
  (loading/padding_probe.py); an output of any other shape ends the sharing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from app.batching.shapes.buckets import ShapeBuckets
from app.batching.shapes.size_rules import FollowedSize
from app.core.bounded_cache import BoundedCache
from app.core.inference import Array, InnerShapes

#: The inner dimensions (all but the first): a number if the size is fixed, a name if it is free. Dimensions with the
#: same name have the same size.
NamedShape = tuple[int | str, ...]

#: The inner dimensions of an output, whose sizes may also follow an input's by a rule.
OutputShape = tuple[int | str | FollowedSize, ...]

#: The shapes whose cells are kept: callers choose shapes. Chosen.
_MAX_SHAPES = 4096


@dataclass(slots=True, eq=False)
class ShapePadding:
    """The padding of one signature.

    Attributes:
        values: by input, the value that it is padded with.
        proven: by free dimension, the largest size that is padded: for larger ones padding was not found neutral.
        call_cells: a call costs as much as its own cells and so many more; see `cells`.
        compiled: (rows, inner shapes) of calls that were compiled; shorter requests are padded to them. Their sizes
            are the largest of their buckets.
        enabled: false after an output had an unexpected shape; no request is padded from then on. The event loop
            writes it, device threads read it.
    """

    inputs: Mapping[str, NamedShape]
    outputs: Mapping[str, OutputShape]
    values: Mapping[str, Any]
    buckets: ShapeBuckets = field(default_factory=ShapeBuckets)
    call_cells: float = 0.0
    enabled: bool = True
    proven: Mapping[str, int] = field(default_factory=dict)
    compiled: frozenset[tuple[int, InnerShapes]] = frozenset()
    _cells: BoundedCache[InnerShapes, int] = field(default_factory=lambda: BoundedCache(_MAX_SHAPES))

    def bucket(self, inputs: Mapping[str, Array]) -> InnerShapes | None:
        """The largest inner shape of each input that may share a call with these; None if only equal shapes may.

        Only equal shapes may share a call if
        - dimensions of the same name differ: the model may reject that, and padding would hide it;
        - a row is empty: the model's answer to an empty row (a maximum of -inf, say) would change;
        - a size is more than was proven, or less than any that was tried for an output that follows it by a rule.
        """
        shape = self.shape(inputs)
        sizes = self._sizes(shape)
        if not self.enabled or shape != tuple([_sized(named, sizes) for named in self.inputs.values()]):
            return None
        if not all(sizes.values()) or any(sizes[name] > most for name, most in self.proven.items()):
            return None
        if any(sizes[rule.dimension] < rule.least for rule in self.rules):
            return None
        return self.top(shape)

    def cells(self, shape: InnerShapes) -> int:
        """The elements of a row of this inner shape, over all inputs with a free dimension; at least 1."""
        cells = self._cells.get(shape)
        if cells is None:
            named = zip(self.inputs.values(), shape, strict=True)
            cells = sum(prod(sizes) for names, sizes in named if any(isinstance(name, str) for name in names))
            self._cells.keep(shape, cells := max(cells, 1))
        return cells

    def shape(self, inputs: Mapping[str, Array]) -> InnerShapes:
        return tuple([inputs[name].shape[1:] for name in self.inputs])

    def call_shape(self, requests: Sequence[Mapping[str, Array]], rows: int) -> InnerShapes:
        """The inner shape of a call for these requests, of `rows` rows in all."""
        longest = common_shape([self.shape(inputs) for inputs in requests])
        if self.compiled and self.enabled:
            top = self.top(longest)
            if (rows, top) in self.compiled:
                return top
        return longest

    def top(self, shape: InnerShapes) -> InnerShapes:
        """The largest shape in the bucket of `shape`."""
        top = self.buckets.top
        return tuple(
            [
                tuple([top(size) if isinstance(each, str) else size for each, size in zip(named, sizes, strict=True)])
                for named, sizes in zip(self.inputs.values(), shape, strict=True)
            ]
        )

    def join(self, requests: Sequence[Mapping[str, Array]], rows: int, shape: InnerShapes) -> dict[str, Array]:
        """The inputs of all requests, stacked and padded to this inner shape and `rows` rows."""
        return {
            name: _stack([inputs[name] for inputs in requests], (rows, *inner), self.values[name])
            for name, inner in zip(self.inputs, shape, strict=True)
        }

    def misfit(self, outputs: Mapping[str, Array], inputs: Mapping[str, Array]) -> str:
        """Why a call with these inputs returned unexpected shapes; empty if it did not."""
        sizes = self._sizes(self.shape(inputs))
        for name, output in outputs.items():
            expected = _sized(self.outputs[name], sizes)
            if output.shape[1:] != expected:
                return f"output {name!r} has shape {output.shape}, not {(len(output), *expected)}"
        return ""

    def cut(self, outputs: Mapping[str, Array], inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of the request with these inputs, cut back to its own sizes."""
        sizes = self._sizes(self.shape(inputs))
        return {name: _cut(output, _sized(self.outputs[name], sizes)) for name, output in outputs.items()}

    @property
    def dimensions(self) -> set[str]:
        """The names of the free dimensions of the inputs."""
        return {each for shape in self.inputs.values() for each in shape if isinstance(each, str)}

    @property
    def rules(self) -> Iterator[FollowedSize]:
        """The rules of output sizes that follow an input's size without being equal to it."""
        return (size for shape in self.outputs.values() for size in shape if isinstance(size, FollowedSize))

    def _sizes(self, shape: InnerShapes) -> dict[str, int]:
        return {
            dimension: size
            for named, sizes in zip(self.inputs.values(), shape, strict=True)
            for dimension, size in zip(named, sizes, strict=True)
            if isinstance(dimension, str)
        }

    def __str__(self) -> str:
        text = f"{_listed(self.inputs)} -> {_listed(self.outputs)}"
        return f"{text}; compiled for {self._listed_compiled()}" if self.compiled else text

    def _listed_compiled(self) -> str:
        by_shape: dict[InnerShapes, list[int]] = {}
        for rows, shape in sorted(self.compiled, key=lambda each: (self.cells(each[1]), each[0])):
            by_shape.setdefault(shape, []).append(rows)
        return ", ".join(
            f"{'x'.join(map(str, self._sizes(shape).values()))} ({', '.join(map(str, rows))} rows)"
            for shape, rows in by_shape.items()
        )


def common_shape(shapes: Sequence[InnerShapes]) -> InnerShapes:
    """The smallest shape that holds all of these."""
    return tuple([tuple(map(max, *each)) for each in zip(*shapes, strict=True)]) if len(shapes) > 1 else shapes[0]


def _sized(shape: OutputShape, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple([_size(dimension, sizes) for dimension in shape])


def _size(dimension: int | str | FollowedSize, sizes: Mapping[str, int]) -> int:
    if isinstance(dimension, str):
        return sizes[dimension]
    return dimension.of(sizes[dimension.dimension]) if isinstance(dimension, FollowedSize) else dimension


def _stack(parts: Sequence[Array], shape: tuple[int, ...], value: Any) -> Array:
    stacked = np.full(shape, value, parts[0].dtype)
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


def _listed(shapes: Mapping[str, OutputShape]) -> str:
    return ", ".join(f"{name}[{','.join(map(str, ('?', *shape)))}]" for name, shape in shapes.items())
