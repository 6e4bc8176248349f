"""What the three tensors of a SparseTensor are that callers send: the entries of each row, in order.

The server sees to what is assumed here before requests share a call (app/batching/shapes/sparse.py): entries ascend by
row and, within it, by the other columns; the first size of the shape is the number of rows; all other sizes are equal,
and the declared ones where they are declared. A request of which that is not so runs alone.
"""

from __future__ import annotations

from app.core.inference import SparseParts
from app.runtimes.tensorflow.row_proof.dimensions import ROWS, Shape, Symbols, symbol
from app.runtimes.tensorflow.row_proof.values import Places, Rows, Size, Value


def sparse_values(symbols: Symbols, names: SparseParts, sizes: Shape, origins: int) -> dict[str, Value]:
    """Indices, values and shape by name. `sizes`: those beside the rows."""
    space, rank = symbols.new_space(), 1 + len(sizes)
    return {
        names.indices: Places(Rows((symbol(space), rank), 0, space=space), ROWS, origins),
        names.values: Rows((symbol(space),), 0, space=space, origins=origins),
        names.shape: Size((rank,), (symbol(ROWS), *sizes), origins),
    }
