"""The classification extension: an output's largest values as `value:index` strings. Pure."""

from __future__ import annotations

from math import prod

import numpy as np

from app.errors import InvalidRequest
from app.inference import STRING, Array


def classify(name: str, array: Array, count: int, batched: bool) -> Array:
    """BYTES of shape [rows, n], or [n] where the model has no batches; n is `count`, or what there is.

    Largest first, of equals the first one first. Floats are written with six decimals, as Triton writes them.

    Raises:
        InvalidRequest: the output has no order.
    """
    if array.dtype == STRING or array.dtype.kind in "bc":
        raise InvalidRequest(f"Output {name!r} cannot be classified: only numbers can, not {array.dtype.name}")
    shape = array.shape if batched and array.ndim else (1, array.size)
    rows = array.reshape(shape[0], prod(shape[1:]))
    exact = rows if rows.dtype.kind in "iu" else rows.astype(np.float64)
    best = _descending(exact)[:, :count]
    write = "{}:{}" if exact.dtype.kind in "iu" else "{:.6f}:{}"
    texts = np.empty(best.shape, STRING)
    for row, indices in enumerate(best):
        texts[row] = [write.format(exact[row, index], index).encode() for index in indices]
    return texts if batched else texts[0]


def _descending(rows: Array) -> Array:
    """Indices by falling value, stable."""
    last = rows.shape[1] - 1
    order: Array = last - np.argsort(rows[:, ::-1], axis=1, kind="stable")[:, ::-1]
    return order
