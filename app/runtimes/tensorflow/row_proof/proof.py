"""The proof of rows by the graph of a signature: `prove_rows`.

It is a proof for all values, under the checks of the server: all inputs that have rows have equally many, at least one,
and requests that share a call have equal shared inputs and equal other sizes. A batch that the model rejects is no
answer; its requests run again one by one.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any

from app.core.graph_rows import GraphRows, OutputRows
from app.core.inference import Dimension, ModelSignature, SparseParts, has_rows
from app.runtimes.tensorflow.row_proof import rules  # noqa: F401 - entering the rules
from app.runtimes.tensorflow.row_proof.abstract_values import Rows, Taint, Uniform, Value
from app.runtimes.tensorflow.row_proof.bodies import Body, NotReadable, graph_body
from app.runtimes.tensorflow.row_proof.dimensions import ROWS, Shape, Symbols, has_space, symbol
from app.runtimes.tensorflow.row_proof.makers import maker_of
from app.runtimes.tensorflow.row_proof.origins import Origins
from app.runtimes.tensorflow.row_proof.ragged_outputs import ragged_verdicts
from app.runtimes.tensorflow.row_proof.sparse_inputs import sparse_values
from app.runtimes.tensorflow.row_proof.walk import Exhausted, Walk, readable

logger = logging.getLogger(__name__)

Shapes = Mapping[str, Sequence[Dimension] | None]


@contextmanager
def _no_collections() -> Iterator[None]:
    """A block without garbage collections: values are not circular, and a collection walks TensorFlow's objects."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@_no_collections()
def prove_rows(
    graph: Any,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    shapes: Shapes,
    *,
    writes: Sequence[str] = (),
    variables: Shapes | None = None,
    vector_keys: bool = True,
    sparse: Mapping[SparseParts, Sequence[Dimension]] = MappingProxyType({}),
    ragged: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> GraphRows:
    """The verdicts of a GraphDef on the rows of its inputs and outputs.

    Args:
        inputs, outputs: the tensors, such as 'x:0', by name. Other placeholders are captured tensors, which are the
            same for all requests.
        shapes: of the inputs. An input whose first size is open (None) has rows; others are shared.
        writes: the operations of the graph that write state which a later call reads (execution/operations.py).
        variables: the shapes of captured variables, by the name of their placeholder.
        vector_keys: whether tables may have vectors for keys.
        sparse: the SparseTensors among the inputs, and the sizes of each beside its rows; see sparse_inputs.py.
        ragged: the row splits of outputs that are RaggedTensors, outermost first, by the name of the values.

    It never raises: a graph that it cannot follow is unknown.
    """
    # 1. The inputs with rows. Without any, and for a graph with a memory, nothing is proven.
    of_sparse = {name for parts in sparse for name in parts}
    row_inputs = [name for name in inputs if name in of_sparse or has_rows(shapes[name])]
    shared = frozenset(inputs) - frozenset(row_inputs)
    if not row_inputs:
        return _all_unknown(outputs, (), shared, "no input has an open first size")
    if writes:
        return _all_unknown(outputs, row_inputs, shared, f"it writes what a later call reads: {', '.join(writes)}")

    # 2. Each has a number; the three parts of a SparseTensor are one input, numbered by its indices.
    parts = {name for names in sparse for name in (names.values, names.shape)}
    numbered = [name for name in row_inputs if name not in parts]
    origins = Origins(len(numbered))

    # 3. The walk from the inputs to the outputs, and the verdict on each output.
    try:
        walk = Walk(graph.library.function, origins, _variables(variables or {}), vector_keys=vector_keys)
        body = graph_body(graph.node, inputs.values(), outputs.values())
        known = {name: _given(walk.symbols, name, shapes[name], numbered) for name in inputs if name not in parts}
        for names, sizes in sparse.items():
            known |= sparse_values(walk.symbols, names, _sizes(walk.symbols, sizes), 1 << numbered.index(names.indices))
        found = walk.run(body, tuple([known[name] for name in inputs]))
        verdicts = {
            name: _verdict(value, partial(_maker, walk, body, number))
            for number, (name, value) in enumerate(zip(outputs, found, strict=True))
        }
        verdicts |= ragged_verdicts(dict(zip(outputs, found, strict=True)), ragged)
    except (Exhausted, NotReadable, RecursionError) as error:
        return _all_unknown(outputs, row_inputs, shared, f"the graph is not followed: {error}")
    except Exception:
        logger.exception("the proof of rows failed; what the graph says counts as unknown")
        return _all_unknown(outputs, row_inputs, shared, "the proof failed; the log says why")
    return GraphRows(verdicts, frozenset(row_inputs), shared, origins.unequal())


def rows_of_signature(
    signature: ModelSignature,
    graph: Any,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    **facts: Any,
) -> GraphRows | None:
    """The verdicts of the graph of a signature; None if no input has rows. `facts`: arguments of `prove_rows`."""
    shapes = {name: signature.inputs[name].shape for name in inputs}
    if not any(map(has_rows, shapes.values())):
        return None
    if signature.ragged:
        return _all_unknown(outputs, (), (), "ragged inputs are not followed")
    sparse = {names: signature.sparse_sizes.get(names.indices) for names in signature.sparse}
    known = {names: sizes for names, sizes in sparse.items() if sizes}
    if len(known) < len(sparse):
        return _all_unknown(outputs, (), (), "sparse tensors of one dimension, or of an unknown rank, are not followed")
    return prove_rows(graph, inputs, outputs, shapes, sparse=known, ragged=signature.ragged_outputs, **facts)


def _all_unknown(outputs: Iterable[str], row_inputs: Iterable[str], shared: Iterable[str], why: str) -> GraphRows:
    return GraphRows(dict.fromkeys(outputs, OutputRows("unknown", why)), frozenset(row_inputs), frozenset(shared))


def _given(symbols: Symbols, name: str, shape: Sequence[Dimension] | None, row_inputs: list[str]) -> Value:
    if shape is None:
        return Uniform()
    if name not in row_inputs:
        return Uniform(_sizes(symbols, shape))
    return Rows((symbol(ROWS), *_sizes(symbols, shape[1:])), 0, origins=1 << row_inputs.index(name))


def _sizes(symbols: Symbols, shape: Sequence[Dimension]) -> Shape:
    return tuple([symbols.fresh() if size is None else size for size in shape])


def _variables(shapes: Shapes) -> dict[str, Shape]:
    found = {name: tuple([size for size in shape or () if size is not None]) for name, shape in shapes.items()}
    return {name: sizes for name, sizes in found.items() if len(sizes) == len(shapes[name] or ())}


def _verdict(value: Value, maker: Callable[[Value], str]) -> OutputRows:
    if isinstance(value, Rows):
        return _verdict_of_rows(value, maker)
    if isinstance(value, Taint):
        return OutputRows(value.verdict, value.reason)
    if isinstance(value, Uniform):
        return OutputRows("no rows", "it is the same whatever the rows are")
    return OutputRows("no rows", f"it is made of the number or the places of rows{maker(value)}")


def _verdict_of_rows(rows: Rows, maker: Callable[[Value], str]) -> OutputRows:
    if rows.axis:
        return OutputRows("no rows", f"its rows lie along axis {rows.axis}, not 0{maker(rows)}")
    if rows.space != ROWS:
        return OutputRows("no rows", f"it has any number of entries for a row{maker(rows)}")
    if not rows.plain:
        return OutputRows("no rows", f"it has several entries for a row{maker(rows)}")
    if any(map(has_space, rows.shape[1:])):
        return OutputRows("mixes", f"another axis of it is as long as there are rows{maker(rows)}")
    return OutputRows("proven")


def _maker(walk: Walk, body: Body, number: int, value: Value) -> str:
    """', by Shape 'size'': the operation that made the space of an output, or the output; empty if it is an input."""
    made_so = walk.makers.get(value.space, "") if isinstance(value, Rows) and not value.axis else ""
    found = made_so or maker_of(body, number, walk.body, readable)
    return f", by {found}" if found else ""
