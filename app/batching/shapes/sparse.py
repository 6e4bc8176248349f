"""Sparse rows: rows with any number of entries in one call without padding. No I/O.

A SavedModel takes a SparseTensor as three tensors: the indices of its entries [n, rank], their values [n], and its
shape [rank]. The first index of an entry is its row, the first size of the shape the number of rows. In a batch the
entries of all requests follow each other, and a request's rows are numbered on from the rows before it.

Rules (test_sparse.py)
1. A request shares calls if its entries are in order (by row, within it by the other columns) and no place occurs
   twice: TensorFlow's operations expect that of a SparseTensor, and the proof by graph relies on it.
2. All sizes but the number of rows are equal in a call, since the model may look at them.
3. These sizes are the declared ones: the proof by graph relies on that, too. An undeclared size costs its sender
   nothing, and a model may make dense rows of it: a row has at most `MOST_CELLS` cells in shared calls.
4. Padding repeats a real row: of the request with the fewest entries a row, the row of the fewest entries. So padding
   has no more entries than the mean row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

import numpy as np

from app.batching.shapes.ragged import RaggedRows
from app.core.inference import Array, ModelSignature, SparseParts
from app.core.validation import rows_are_equal

#: The most rows of a request that shares calls, and its most rows beside its entries: empty rows cost the sender
#: nothing, and many of them take more calls shared than alone. Chosen: as many rows as wait by default, and a batch.
MOST_ROWS, FREE_ROWS = 8192, 64

#: The most cells of a row with an undeclared size. Chosen: 64 dense rows of float32 take 256 MiB.
MOST_CELLS = 2**20


@dataclass(frozen=True)
class SparseRows(RaggedRows):
    """The ragged and sparse inputs of a signature; all others have shape [rows, ...].

    Attributes:
        sparse: the names of the parts of each SparseTensor; there is at least one.
    """

    sparse: tuple[SparseParts, ...]

    def count(self, arrays: Mapping[str, Array]) -> int:
        """The number of rows; -1 if the shape of the first SparseTensor is missing."""
        shape = arrays.get(self.sparse[0].shape)
        return -1 if shape is None or not shape.size else int(shape[0])

    @property
    def equal_names(self) -> frozenset[str]:
        """The shape tensors: requests of one row all have the same ones."""
        return frozenset(names.shape for names in self.sparse)

    def sizes(self, inputs: Mapping[str, Array]) -> tuple[Hashable, ...]:
        """The name and the sizes of each SparseTensor, without the number of rows."""
        return tuple([(names.indices, *inputs[names.shape][1:].tolist()) for names in self.sparse])

    def part(self, inputs: Mapping[str, Array], start: int, end: int) -> dict[str, Array]:
        """The tensors of rows `start` to `end` alone."""
        cut = super().part(self._others(inputs), start, end)
        for names in self.sparse:
            cut |= _part(names, inputs, start, end)
        return cut

    def join(self, requests: Sequence[Mapping[str, Array]], own_rows: int, rows: int) -> dict[str, Array]:
        """The inputs of all requests, `own_rows` rows; a row of few entries is repeated to reach `rows`."""
        parts = list(requests)
        if own_rows < rows:
            parts += [self._smallest_row(requests)] * (rows - own_rows)
        if len(parts) == 1:
            return dict(parts[0])
        joined = super().join([self._others(each) for each in parts], rows, rows)
        for names in self.sparse:
            joined |= _join(names, parts)
        return joined

    def misfit(self, arrays: Mapping[str, Array], rows: int) -> str:
        """The reason why the arrays are not `rows` rows; empty if they are."""
        for names in self.sparse:
            shape = arrays[names.shape]
            if not shape.size or shape[0] != rows:
                return f"{names.shape!r} says {shape[:1].tolist()} rows, not {rows}"
        return super().misfit(self._others(arrays), rows)

    def _others(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        sparse = {name for names in self.sparse for name in names}
        return {name: array for name, array in inputs.items() if name not in sparse}

    def _smallest_row(self, requests: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        def mean_entries(inputs: Mapping[str, Array]) -> float:
            return sum([len(inputs[names.values]) for names in self.sparse]) / self.count(inputs)

        inputs = min([each for each in requests if self.count(each) > 0], key=mean_entries)
        rows = self.count(inputs)
        entries = sum([np.bincount(inputs[names.indices][:, 0], minlength=rows) for names in self.sparse])
        place = int(np.argmin(entries))
        return self.part(inputs, place, place + 1)


def composite_rows(signature: ModelSignature) -> RaggedRows | None:
    """The ragged or sparse rows of a signature's inputs; None if each input has the shape [rows, ...]."""
    if signature.sparse:
        return SparseRows(signature.ragged, signature.sparse)
    return RaggedRows(signature.ragged) if signature.ragged else None


def sizes_to_share(signature: ModelSignature, inputs: Mapping[str, Array]) -> tuple[Hashable, ...] | None:
    """The sizes that must be equal in requests that share a call: of each SparseTensor, with its name, without rows.

    None if the request runs alone. Its inputs were checked against the signature.
    """
    most_rows = min(FREE_ROWS + sum([array.size for array in inputs.values()]), MOST_ROWS)
    for names in signature.sparse:
        rows, *sizes = inputs[names.shape].tolist() or [0]
        if not 0 < rows <= most_rows or not in_order(inputs[names.indices]):
            return None
        declared = signature.sparse_sizes.get(names.indices) or (None,) * len(sizes)
        if prod(sizes) > MOST_CELLS and None in declared:
            return None
        if any(size not in {None, part_indices} for size, part_indices in zip(declared, sizes, strict=True)):
            return None
    return SparseRows(signature.ragged, signature.sparse).sizes(inputs) if rows_are_equal(signature, inputs) else None


def in_order(indices: Array) -> bool:
    """Whether the lines of a matrix [n, at least 1] ascend by the first column that differs, and all differ."""
    before, after = indices[:-1], indices[1:]
    ascends: Array = after[:, -1] > before[:, -1]
    for column in range(indices.shape[1] - 2, -1, -1):
        one, other = before[:, column], after[:, column]
        ascends = (other > one) | ((other == one) & ascends)
    return bool(ascends.all())


def _part(names: SparseParts, inputs: Mapping[str, Array], start: int, end: int) -> dict[str, Array]:
    indices, shape = inputs[names.indices], inputs[names.shape].copy()
    first, last = [bisect_left(range(len(indices)), row, key=lambda entry: indices[entry, 0]) for row in (start, end)]
    part_indices = indices[first:last].copy()
    part_indices[:, 0] -= start
    shape[0] = end - start
    return {names.indices: part_indices, names.values: inputs[names.values][first:last], names.shape: shape}


def _join(names: SparseParts, parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    rows = [int(part[names.shape][0]) for part in parts]
    shape = parts[0][names.shape].copy()
    shape[0] = sum(rows)
    indices = np.concatenate([part[names.indices] for part in parts])
    starts = [0, *accumulate(rows[:-1])]
    indices[:, 0] += np.repeat(starts, [len(part[names.indices]) for part in parts])
    return {
        names.indices: indices,
        names.values: np.concatenate([part[names.values] for part in parts]),
        names.shape: shape,
    }
