"""Inputs of a signature that its model accepts: zeros, unless hints or the warm-up file say otherwise.

A model without hints is called with zeros, without a trial. For a model that is likely to reject zeros (it decodes
images, or asserts ranges) the hints are tried with calls of one row. The first row that the model accepts is repeated.
Rows of the version's warm-up file come before all others. The accepted row is kept with the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from weakref import WeakKeyDictionary

import numpy as np

from app.batching.shapes.sparse import composite_rows
from app.core.errors import ServingError
from app.core.inference import Array, ModelSignature, Row
from app.core.time_budget import OverBudget
from app.core.values.sample_inputs import hinted_inputs, zero_inputs
from app.core.values.value_hints import ValueHints, pool_numbers, reject_zeros
from app.loading.budgeted_model import BudgetedModel
from app.runtime import LoadedModel, hints_of

#: The row of each signature by model, None for zeros. The rows of a closed model are freed with it.
_found: WeakKeyDictionary[LoadedModel, dict[str, Row | None]] = WeakKeyDictionary()


def accepted_inputs(model: LoadedModel, signature: ModelSignature, rows: int, open_size: int = 1) -> dict[str, Array]:
    """Inputs of `rows` rows that the model accepts, if a row is found; zeros otherwise, with this open size."""
    row = accepted_row(model, signature)
    return zero_inputs(signature, rows, open_size) if row is None else repeated(signature, row, rows)


def accepted_row(model: LoadedModel, signature: ModelSignature) -> Row | None:
    """A row that the model accepts, if it is likely to reject zeros; None if none is found, or needed."""
    found = _found.setdefault(model, {})
    if signature.name not in found:
        found[signature.name] = next(_accepted(model, signature), None)
    return found[signature.name]


def repeated(signature: ModelSignature, row: Row, rows: int) -> dict[str, Array]:
    """Inputs with `rows` repetitions of a row; the row itself if the signature shares no calls."""
    if not signature.shares_calls or rows == 1:
        return dict(row)
    if (uneven := composite_rows(signature)) is not None:
        return uneven.join([row] * rows, rows, rows)
    shared = signature.shared
    return {name: array if name in shared else np.repeat(array, rows, axis=0) for name, array in row.items()}


def _likely(signature: ModelSignature, hints: ValueHints) -> Iterator[Row]:
    """Rows to try: one of each pool, and one with numbers that add up to 1."""
    for number in pool_numbers(hints) or [0]:
        yield hinted_inputs(signature, hints, 1, number)
    row = hinted_inputs(signature, hints, 1, 0)
    floating = {name: array for name, array in row.items() if np.issubdtype(array.dtype, np.floating) and array.size}
    if floating:
        yield row | {name: np.asarray(array / array.sum(-1, keepdims=True)) for name, array in floating.items()}


def _accepted(model: LoadedModel, signature: ModelSignature) -> Iterator[Row]:
    """The rows that the model accepts, tried one by one."""
    if signature.sparse or signature.writes:
        return
    known = model.known_rows.get(signature.name, ()) if isinstance(model, BudgetedModel) else ()
    hints = hints_of(model, signature.name)
    for row in chain(known[:1], _likely(signature, hints) if reject_zeros(hints) else ()):
        try:
            model.run(signature.name, row, ())
        except OverBudget:
            return
        except ServingError:
            continue
        yield row
