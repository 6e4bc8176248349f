"""The values of the three tensors of a SparseTensor input: the entries of its rows, in order.

The server checks the assumptions before requests share a call (app/batching/shapes/sparse.py): entries ascend by row
and, within it, by the other columns; the first size of the shape is the number of rows; all other sizes are equal, and
the declared ones where they are declared. A request that does not meet them runs alone.
"""

from __future__ import annotations

from app.core.inference import SparseParts
from app.runtimes.tensorflow.row_proof.abstract_values import Places, Rows, Size, Value
from app.runtimes.tensorflow.row_proof.dimensions import ROWS, Shape, Symbols, symbol


def sparse_values(symbols: Symbols, names: SparseParts, sizes: Shape, origins: int) -> dict[str, Value]:
    """The values of indices, values and shape, by name. `sizes`: the sizes beside the rows."""
    space, rank = symbols.new_space(), 1 + len(sizes)
    return {
        names.indices: Places(Rows((symbol(space), rank), 0, space=space), ROWS, origins),
        names.values: Rows((symbol(space),), 0, space=space, origins=origins),
        names.shape: Size((rank,), (symbol(ROWS), *sizes), origins),
    }
