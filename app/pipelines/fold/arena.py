"""The arena of a fold: the states of the nodes of all requests, in common arrays. No I/O, no clock.

Rules (test_arena.py)
- A node has a row, the same in each array. Row 0 is all zeros: the state of an empty slot.
- Free rows are a stack; the rows of a request need not be neighbours.
- The arrays grow by doubling, up to the limits, and are small again when no row is taken.
- Gathered states are a copy: later writes and growth do not change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.core.errors import InferenceFailed, Overloaded, RequestTooLarge
from app.core.inference import STRING, Array, dtype_name, format_shape
from app.pipelines.fold.forest import Numbers

#: The rows at first. Chosen: more than 64 small trees have.
_FIRST_ROWS = 4096

#: The bits of a row's number, which bound the number of rows (ready_nodes.py).
ROW_BITS = 24


class Arena:
    """Named arrays with common rows.

    Args:
        rows: for each array's name, the shape and dtype of its rows; no strings: freed rows would keep them.
        most_rows: the most rows that may be taken.
        most_bytes: the most bytes of all arrays together. While an array grows, its old copy exists, too.

    Attributes:
        most_rows: the most rows that may be taken, by the two arguments and ROW_BITS.
        taken: the number of rows taken.
    """

    __slots__ = ("_arrays", "_free", "_raw", "_raw_dtype", "_rows", "most_rows", "taken")

    def __init__(
        self, rows: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]], most_rows: int, most_bytes: int
    ) -> None:
        if any(dtype == STRING for _, dtype in rows.values()):
            raise ValueError("expected numbers as states, got strings")
        self._rows = dict(rows)
        row_bytes = {name: prod(shape) * dtype.itemsize for name, (shape, dtype) in rows.items()}
        if not all(row_bytes.values()):
            raise ValueError(f"expected states with elements, got {dict(rows)}")
        self._raw_dtype = {name: np.dtype((np.void, size)) for name, size in row_bytes.items()}
        fitting = most_bytes // sum(row_bytes.values())
        self.most_rows = min(most_rows, fitting - 1, (1 << ROW_BITS) - 1)
        self._make()

    def _make(self) -> None:
        capacity = min(_FIRST_ROWS, self.most_rows + 1)
        self.taken = 0
        self._free = np.arange(1, capacity)  # a stack of free row numbers; `taken` is the index of its top
        self._arrays = {name: np.zeros((capacity, *shape), dtype) for name, (shape, dtype) in self._rows.items()}
        self._raw = {name: self._as_bytes(name, array) for name, array in self._arrays.items()}

    def _as_bytes(self, name: str, array: Array) -> NDArray[np.void]:
        """The array with each row as one element: numpy copies such rows three times as fast (measured).

        An array that is not contiguous is copied.
        """
        raw: NDArray[np.void] = array.reshape(-1).view(self._raw_dtype[name])
        return raw

    @property
    def capacity(self) -> int:
        """The rows of the arrays, row 0 included."""
        return len(self._free) + 1

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays.values())

    # --- rows ---

    def allocate(self, count: int) -> Numbers:
        """Take free rows, and return their numbers. The rows may still hold states of earlier requests.

        Raises:
            RequestTooLarge: there are never that many rows.
            Overloaded: other requests have too many rows. Nothing was taken.
        """
        if count > self.most_rows:
            raise RequestTooLarge(
                f"the request has {count:,} nodes; expected at most {self.most_rows:,}, whose states fit into memory"
            )
        if count > self.most_rows - self.taken:
            raise Overloaded(
                f"The memory for states holds {self.taken:,} nodes, at most {self.most_rows:,}; "
                f"{count:,} more do not fit"
            )
        if self.taken + count > len(self._free):
            self._grow(self.taken + count + 1)
        rows = self._free[self.taken : self.taken + count].copy()
        self.taken += count
        return rows

    def free(self, rows: Numbers) -> None:
        """Give rows back. They must not be read any more."""
        self.taken -= len(rows)
        self._free[self.taken : self.taken + len(rows)] = rows
        if not self.taken and self.capacity > _FIRST_ROWS:
            self._make()

    def _grow(self, needed: int) -> None:
        old = self.capacity
        capacity = min(max(2 * old, needed), self.most_rows + 1)
        for name, array in self._arrays.items():
            self._arrays[name] = grown(array, capacity)
            self._raw[name] = self._as_bytes(name, self._arrays[name])
        self._free = np.concatenate((self._free, np.arange(old, capacity)))

    # --- states ---

    def gather(self, name: str, rows: Numbers) -> Array:
        """A copy of these rows of one array, of shape [*rows.shape, ...]."""
        found: Array = self._arrays[name].take(rows, axis=0)
        return found

    def scatter(self, rows: Numbers, values: Mapping[str, Array]) -> None:
        """Write values into different rows, none of them row 0.

        Args:
            rows: [n]
            values: by name, arrays of shape [n, ...].

        Raises:
            InferenceFailed: an array does not have the shape or dtype of its rows. Nothing was written.
        """
        self.check(len(rows), values)
        for name, value in values.items():
            self._raw[name][rows] = self._as_bytes(name, value)

    def check(self, count: int, values: Mapping[str, Array]) -> None:
        """Raises InferenceFailed: an array does not have the shape or dtype of `count` rows."""
        for name, value in values.items():
            shape, dtype = self._rows[name]
            if value.shape != (count, *shape) or value.dtype != dtype:
                raise InferenceFailed(
                    f"{name}: expected {dtype_name(dtype)}{format_shape((count, *shape))}, "
                    f"got {dtype_name(value.dtype)}{format_shape(value.shape)}"
                )

    def __repr__(self) -> str:
        return f"<Arena {self.taken}/{self.most_rows} rows, {self.nbytes} bytes ({', '.join(self._rows)})>"


def grown(array: Array, length: int) -> Array:
    """The array with `length` rows; new ones are zeros."""
    longer = np.zeros((length, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer
