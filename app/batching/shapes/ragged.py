"""Ragged rows: rows of different lengths in one call without padding. No I/O.

A SavedModel takes a RaggedTensor as several tensors: the values of all rows, one after the other, and for each ragged
dimension the row splits, outermost first. Row `n` lies from `splits[n]` to `splits[n + 1]`, so n rows have n + 1
splits. In a batch the values of all requests follow each other, and the splits of each request are moved accordingly.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from app.core.inference import Array


@dataclass(frozen=True, slots=True)
class RaggedRows:
    """The ragged inputs, or outputs, of a signature; all others have shape [rows, ...].

    Attributes:
        splits: name of the values -> names of their row splits, outermost first.
    """

    splits: Mapping[str, Sequence[str]]

    def count(self, arrays: Mapping[str, Array]) -> int:
        """The number of rows; -1 if the splits that tell it are missing."""
        splits = arrays.get(next(iter(self.splits.values()))[0])
        return -1 if splits is None else len(splits) - 1

    @property
    def equal_names(self) -> frozenset[str]:
        """The tensors that are equal in each row; see SparseRows."""
        return frozenset()

    def sizes(self, inputs: Mapping[str, Array]) -> tuple[Hashable, ...]:  # noqa: ARG002 - SparseRows reads them
        """The sizes that must be equal in requests that share a call, beside inner shapes; see SparseRows."""
        return ()

    def part(self, inputs: Mapping[str, Array], start: int, end: int) -> dict[str, Array]:
        """The tensors that hold only rows `start` to `end`."""
        cut = {name: array[start:end] for name, array in inputs.items()}
        for values, all_splits in self.splits.items():
            first, last = start, end
            for name in all_splits:
                splits = inputs[name][first : last + 1]
                first, last = int(splits[0]), int(splits[-1])
                cut[name] = splits - splits[0]
            cut[values] = inputs[values][first:last]
        return cut

    def join(self, requests: Sequence[Mapping[str, Array]], own_rows: int, rows: int) -> dict[str, Array]:
        """The inputs of all requests, `own_rows` rows; the first row is repeated to reach `rows`."""
        parts = list(requests)
        if own_rows < rows:
            first = next(inputs for inputs in requests if self.count(inputs) > 0)
            parts += [self.part(first, 0, 1)] * (rows - own_rows)
        if len(parts) == 1:
            return dict(parts[0])
        names = {name for all_splits in self.splits.values() for name in all_splits}
        return {
            name: _join_splits([part[name] for part in parts])
            if name in names
            else np.concatenate([part[name] for part in parts])
            for name in parts[0]
        }

    def misfit(self, arrays: Mapping[str, Array], rows: int) -> str:
        """The reason why the arrays are not `rows` rows; empty if they are."""
        counts = {name: len(array) if array.ndim else -1 for name, array in arrays.items()}
        for values, all_splits in self.splits.items():
            counts[values] = len(arrays[all_splits[0]]) - 1
            for name, inner in pairwise([*all_splits, values]):
                del counts[name]
                splits, ends_at = arrays[name], len(arrays[inner]) - (inner != values)
                if not len(splits) or splits[0] != 0 or splits[-1] != ends_at or (splits[1:] < splits[:-1]).any():
                    return f"{name!r} are no row splits of {inner!r}"
        return next((f"{name!r} has {count} rows, not {rows}" for name, count in counts.items() if count != rows), "")


def _join_splits(parts: Sequence[Array]) -> Array:
    joined = [parts[0][:1]]
    offset = 0
    for splits in parts:
        joined.append(splits[1:] + offset)
        offset += int(splits[-1])
    return np.concatenate(joined).astype(parts[0].dtype, copy=False)
